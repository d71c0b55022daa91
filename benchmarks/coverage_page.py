"""The coverage tables as a Markdown page."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import Any

from core_coverage import DTYPES, overload_of, reason_outside
from pages import processor

from dort_compare.lowering import decompositions, registered
from dort_compare.lowering.table import core_overloads

Result = dict[str, Any]


def page(command: str, entries: Sequence[Result], overloads: Sequence[Result], models: Sequence[Result]) -> str:
    """What was measured, in the order: shares, models, ops, overloads."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "onnxruntime-gpu", "onnx", "transformers"))
    lines = [
        "# Coverage",
        "",
        "Measured with `capture_dynamic_output_shape_ops` and `capture_scalar_outputs` of `torch._dynamo.config`,",
        "without which dynamo gives what depends on data to no backend.",
        "",
        f"`{command}`, {datetime.datetime.now(tz=datetime.UTC).date()}, {processor()}, CPU provider, {versions}.",
        "",
        *_shares(entries, overloads),
        *(_models(models) if models else []),
        *(_entries(entries) if entries else []),
        *(_overloads(overloads) if overloads else []),
    ]
    return "\n".join([*lines, ""])


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(str(cell).replace('|', '/') for cell in line)} |" for line in lines] + [""]


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / whole:.1%})" if whole else "none"


def _shares(entries: Sequence[Result], overloads: Sequence[Result]) -> list[str]:
    answered = [entry for entry in entries if entry.get("samples")]
    counted = [entry for entry in answered if not entry["aside"]]
    with_gradient = [entry for entry in answered if entry["gradients"]]
    rows = [
        ["op_db entries whose every forward value is eager's", _right(answered, "forward")],
        ["of those that count, wholly in ONNX Runtime", _share(sum(map(_stays_forward, counted)), len(counted))],
        ["op_db entries whose every gradient is eager's", _right(with_gradient, "gradient")],
        ["of those that count, wholly in ONNX Runtime, both ways", _whole_gradients(with_gradient)],
        ["entries that do not count (random, sparse, unspecified)", len(answered) - len(counted)],
    ]
    names = core_overloads()
    core = {result["name"]: result for result in overloads if result["name"] in names}
    inside = {name for name, result in core.items() if _is_inside(result)}
    if core:
        rows.append(["core ATen overloads wholly in ONNX Runtime", _share(len(inside), len(core))])
        named = sum(bool(reason_outside(name)) for name in core.keys() - inside)
        rows.append(["of the others, those with a reason of their own", _share(named, len(core) - len(inside))])
    return table(["what", "measured"], rows if entries else rows[5:]) if entries or overloads else []


def _right(entries: Sequence[Result], side: str) -> str:
    return _share(sum(not entry[side] for entry in entries), len(entries))


def _stays_forward(entry: Result) -> bool:
    return all(phase == "backward" for phase, _, _ in entry["fallen_back"])


def _whole_gradients(entries: Sequence[Result]) -> str:
    counted = [entry for entry in entries if not entry["aside"]]
    return _share(sum(not entry["fallen_back"] for entry in counted), len(counted))


def _models(models: Sequence[Result]) -> list[str]:
    def row(model: Result) -> list[object]:
        if "values" not in model:
            return [model["name"], model.get("verdict", model.get("lost")), "", "", "", ""]
        fallen = ", ".join(f"{count} {op}" for op, count in model["fallen_back"].items()) or "none"
        worst = [f"{model['worst'][kind]:.1e}" for kind in ("output", "gradient")]
        return [model["name"], model["verdict"], model["values"], fallen, *worst]

    return [
        "## Model families",
        "",
        "A small member of each, forward and backward: *values* are the FX values compared, *output* and *gradient*",
        "the largest distance from eager relative to the tensor's largest element, but of gradients that are rounding",
        "alone in eager torch too.",
        "",
        *table(["family", "verdict", "values", "fell back", "output", "gradient"], map(row, models)),
    ]


def _entries(entries: Sequence[Result]) -> list[str]:
    wrong = [
        [entry["name"], side, "; ".join(sorted(set(entry[side]))[:2])]
        for entry in entries
        for side in ("forward", "gradient")
        if entry.get(side)
    ]
    lost = [[entry["name"], "both", entry["lost"]] for entry in entries if "lost" in entry]
    outside = [
        [entry["name"], entry["aside"], ", ".join(sorted({f"{phase}: {op}" for phase, op, _ in entry["fallen_back"]}))]
        for entry in entries
        if entry.get("fallen_back")
    ]
    blockers = Counter(op for entry in entries if not entry.get("aside") for op in _blockers(entry))
    return [
        "## Operator database: other values than eager's, or an error",
        "",
        *(table(["entry", "side", "what"], [*wrong, *lost]) if wrong or lost else ["None.", ""]),
        "## Operator database: what leaves ONNX Runtime",
        "",
        *table(["op", "entries"], blockers.most_common()),
        *table(["entry", "does not count", "runs in eager torch"], outside),
    ]


def _blockers(entry: Result) -> set[str]:
    return {op for _, op, _ in entry.get("fallen_back", ())}


def _is_inside(result: Result) -> bool:
    """Whether the float32 calls stayed inside, or where there are none, some dtype's."""
    dtypes = result.get("dtypes", {})
    return "" in dtypes.values() and not dtypes["float32"]


def tested(overloads: Sequence[Result]) -> dict[str, list[str]]:
    """From overloads to the dtypes in which every measured call was wholly in ONNX Runtime and equal to eager."""
    return {o["name"]: [d for d in DTYPES if o.get("dtypes", {}).get(d) == ""] for o in overloads}


def _overloads(overloads: Sequence[Result]) -> list[str]:
    lowered, decomposed = registered(), decompositions()

    def row(result: Result) -> list[object]:
        overload = overload_of(result["name"])
        how = "lowering" if overload in lowered else "decomposition" if overload in decomposed else "eager torch"
        dtypes = result.get("dtypes", {})
        inside = ", ".join(tested([result])[result["name"]])
        problems = sorted({problem for problem in dtypes.values() if problem})
        why = result.get("lost") or ("" if inside else reason_outside(result["name"])) or "; ".join(problems[:2])
        return [result["name"], how, inside, why]

    return [
        "## Core ATen, and what autograd emits",
        "",
        *table(["overload", "reached by", "in ONNX Runtime, equal to eager", "otherwise"], map(row, overloads)),
    ]
