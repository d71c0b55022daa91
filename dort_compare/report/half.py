"""What a report says of half precision: lines of text."""

from __future__ import annotations

from itertools import groupby

from dort_compare.measure.divergence import in_run
from dort_compare.measure.half.precision import Precision, RangeUse
from dort_compare.measure.half.suggestion import KeptNode, Suggestion

_SHOWN = 8


def precision_lines(precision: Precision) -> list[str]:
    """How many values and casts there are, and the values at which a finding begins; nothing without such values."""
    if precision.closest is None:
        return []
    lines = [f"half precision: {precision.half_values} values, {len(precision.casts)} changes of dtype"]
    closest = precision.closest
    lines[0] += f"; {_place(closest)} comes closest to the end of its range, {closest.use.head_room:.1f} powers of two"
    origins = precision.origins
    lines += [f"  {in_run(each.run)}{_place(each)} {_what(each)}" for each in origins[:_SHOWN]]
    rest = len(precision.ranges) - min(len(origins), _SHOWN)
    return [*lines, f"  and {rest} more, most of which follow from these"] if rest else lines


def suggestion_lines(suggestion: Suggestion) -> list[str]:
    """The mend as a person would carry it out, and what it does to the worst result."""
    lines = [f"to keep in float32: {_NOTHING.get(suggestion.mend, 'these lines')}: {suggestion.reason}"]
    if suggestion.loss_scale:
        lines.append(f"  multiply the loss by {suggestion.loss_scale:.0f} and divide the gradients by it (GradScaler)")
    for (module, source), nodes in groupby(_by_line(suggestion.nodes), key=_line):
        lines.append(f"  {_where(module, source) or 'somewhere'}: {_ops(list(nodes))}")
    if suggestion.nodes:
        lines.append("  with torch.autocast(device, enabled=False), on .float() operands")
    if suggestion.worst:
        worst = suggestion.worst
        change = f"{worst.before:.2g}" if worst.before == worst.after else f"{worst.before:.2g} -> {worst.after:.2g}"
        lines.append(f"  relative error of {worst.kind} {worst.name}: {change}, where {worst.floor:.2g} is its floor")
    return [*lines, f"  found in {suggestion.runs} runs; {suggestion.lines} lines compute in half precision"]


_NOTHING = {
    "none needed": "nothing",
    "loss scale": "nothing, but scale the loss",
    "none suffices": "no few lines suffice",
    "not searched": "not searched",
}


def _what(each: RangeUse) -> str:
    use = each.use
    return {
        "overflows": f"overflows {each.dtype}: {use.overflowed:.2%} of it is inf or NaN where float64 is finite",
        "near the range": f"is near the end of {each.dtype}: its largest element is {use.largest:.3g}",
        "underflows": f"underflows in {each.dtype}: {use.underflowed:.0%} of it is zero or subnormal",
        "holds no digit": f"holds no digit in {each.dtype}: {use.wrong:.0%} of it errs by as much as it is, or more",
    }[each.finding or "near the range"]


def _place(each: RangeUse | KeptNode) -> str:
    where = _where(each.module, each.source)
    return f"{each.phase} {each.fx_node} ({each.target})" + (f" in {where}" if where else "")


def _where(module: str, source: str) -> str:
    return " at ".join(part for part in (module and f"module {module}", source) if part)


def _ops(nodes: list[KeptNode]) -> str:
    ahead = ", ".join(f"{node.fx_node} ({node.target})" for node in nodes if node.phase != "backward")
    behind = ", ".join(node.fx_node for node in nodes if node.phase == "backward")
    return " and ".join(part for part in (ahead, behind and f"backward {behind}") if part)


def _by_line(nodes: tuple[KeptNode, ...]) -> list[KeptNode]:
    order = list(dict.fromkeys(_line(node) for node in nodes))
    return sorted(nodes, key=lambda node: order.index(_line(node)))


def _line(node: KeptNode) -> tuple[str, str]:
    return node.module, node.source
