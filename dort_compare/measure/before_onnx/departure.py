"""The first value that departs before ONNX, in words."""

from __future__ import annotations

from collections.abc import Sequence

from dort_compare.measure.before_onnx.modules import ModuleRow, departures
from dort_compare.measure.distance.distances import Number
from dort_compare.measure.divergence import Divergence, float64_has
from dort_compare.measure.outcome import OutcomeRow


def first_departure(modules: Sequence[ModuleRow], reference: Sequence[OutcomeRow]) -> Divergence | None:
    """Where plain eager and the traced graphs, both on torch's kernels, part first; None where they do not.

    ``reference`` are the outputs and gradients of the traced graphs. A parameter's gradient counts as computed right
    after the gradient by what its module returns: it departs first where that one does not.
    """
    found = departures(modules)
    parameter = _parameter(modules, reference)
    if found and (parameter is None or found[0].kind == "output"):
        return _of_module(found[0])
    if parameter is not None and (not found or _position(modules, parameter) < modules.index(found[0])):
        return _of_outcome(parameter)
    if found:
        return _of_module(found[0])
    return next((_of_outcome(row) for row in reference if not row.ok), None)


def _parameter(modules: Sequence[ModuleRow], reference: Sequence[OutcomeRow]) -> OutcomeRow | None:
    """The gradient of a parameter that departs, the first in the order of the backward pass."""
    wrong = [row for row in reference if row.kind == "gradient" and not row.ok and not _is_argument(row)]
    return min(wrong, key=lambda row: _position(modules, row), default=None)


def _is_argument(row: OutcomeRow) -> bool:
    return row.name.startswith("argument[")


def _position(modules: Sequence[ModuleRow], parameter: OutcomeRow) -> int:
    """Of the gradient by what the parameter's module returned in its first call; behind all where there is none."""
    module = parameter.name.rpartition(".")[0]
    for position, row in enumerate(modules):
        if (row.module, row.call, row.kind) == (module, 0, "gradient"):
            return position
    return len(modules)


def _of_module(row: ModuleRow) -> Divergence:
    name = f"module {row.module}" if row.module else "the model"
    what = f"the {'output' if row.kind == 'output' else 'gradient by the output'}{_leaf(row)} of {name}"
    nodes = row.fx_nodes or (row.fx_node,)
    target = row.target if len(nodes) == 1 else ""
    return Divergence(
        phase="eager",
        fx_node=" ".join(nodes),
        target=target,
        module=row.cause,
        source=row.source,
        reason=_reason(what, row),
    )


def _leaf(row: ModuleRow) -> str:
    return f" {row.leaf}" if row.leaf else ""


def _of_outcome(row: OutcomeRow) -> Divergence:
    module = row.name.rpartition(".")[0] if row.kind != "output" and not _is_argument(row) else ""
    what = f"{row.kind} {row.name}"
    return Divergence(phase="eager", fx_node=what, module=module, reason=_reason(what, row))


def _reason(what: str, row: ModuleRow | OutcomeRow) -> str:
    gap = row.distance
    if gap is None:
        return f"departs before ONNX: only one of eager and the traced graph has {what}"
    if gap.finding:
        theirs, ours = _vs_float64(row)
        known = float64_has({"the traced graph": theirs, "eager": ours})
        return f"departs before ONNX: {what} in the traced graph against eager: {gap.finding}{known}"
    return (
        f"departs before ONNX: {what} differs between eager and the traced graph by {gap.max_abs:.3g} "
        f"where {row.noise_floor:.3g} is noise{_further(row)}"
    )


def _further(row: ModuleRow | OutcomeRow) -> str:
    theirs, ours = _vs_float64(row)
    if theirs is None or ours is None:
        return ""
    further = "the graph" if theirs > ours else "eager"
    return f"; {further} is further from float64 ({theirs:.3g} against {ours:.3g}, graph against eager)"


def _vs_float64(row: ModuleRow | OutcomeRow) -> tuple[Number | None, Number | None]:
    """How far the graph and eager lie from it."""
    return row.graph_vs_float64 if isinstance(row, ModuleRow) else row.onnx_vs_float64, row.torch_vs_float64
