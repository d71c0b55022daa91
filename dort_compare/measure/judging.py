"""Judges the values of one graph, in order of execution: a row for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import torch
from torch import fx

from dort_compare.align.provenance import OnnxValue
from dort_compare.dtypes import as_held, coarsest, dtype_name
from dort_compare.errors import ExecutionError
from dort_compare.fx_graph import shown_call
from dort_compare.layouts import hints
from dort_compare.measure.coarser_dtype import as_held_by, but_for_masks, what_is_lost
from dort_compare.measure.distance.distances import Distance
from dort_compare.measure.distance.metrics import Measured, distance, measure
from dort_compare.measure.noise.floor import noise_floor
from dort_compare.measure.noise.inherited import is_noise
from dort_compare.measure.noise.local import LocalError, local_error
from dort_compare.measure.rows import Row, Status
from dort_compare.provenance import Provenance, source_code, target_name
from dort_compare.trace import GraphRun
from dort_compare.trace.four_executions import Executed
from dort_compare.trace.passages import are_same_elements

_NO_VALUE = "no ONNX value stands for it"
_NOT_RUN = "torch refuses what a graph that departs has handed on"
_COMPLEX = "complex; its real and imaginary parts are compared"


class Judge:
    """Knows of every value of one run of a graph so far how coarsely it was computed and whether it has departed.

    ``held`` gives, by FX node, the coarser dtypes that a converted model holds values in.
    """

    def __init__(self, run: GraphRun, held: Mapping[str, torch.dtype] = MappingProxyType({})) -> None:
        self.run = run
        self.held = held
        self.precisions: dict[fx.Node, torch.dtype | None] = {}
        self.astray: set[fx.Node] = set()
        self._measured: dict[str, Measured] = {}

    def row(self, executed: Executed, onnx: OnnxValue | None) -> Row:
        """The row of a tensor, in the order of the graph; ``onnx`` is the value that stands for it, if any."""
        node, expected = executed.step.node, executed.step.value
        precision = self._precision(node, expected.dtype)
        inherits = any(operand in self.astray for operand in _operands(node))
        if onnx is None or executed.own is None:
            self._mark(node, inherits)
            opaque = onnx and onnx.opaque
            stands = onnx.name if onnx and opaque else None
            no_value = _COMPLEX if expected.is_complex() else _NO_VALUE
            return self._row(node, expected, "unaligned", reason=opaque or no_value, onnx_value=stands)
        return self._compared(executed, executed.own, onnx, precision, inherits)

    def not_run(self, node: fx.Node) -> Row:
        """The row of a value that neither side computes, for torch refuses its operands."""
        traced = node.meta["val"]
        value = torch.empty(hints(traced.shape) or (), dtype=traced.dtype, device="meta")
        return self._row(node, value, "unaligned", reason=_NOT_RUN)

    def _compared(
        self, executed: Executed, own: torch.Tensor, onnx: OnnxValue, precision: torch.dtype | None, inherits: bool
    ) -> Row:
        node, expected = executed.step.node, executed.step.value
        held = self.held.get(node.name) if expected.is_floating_point() else None
        if held is not None:
            executed, own = as_held_by(executed, held), but_for_masks(expected, own, held)
        found = self._measured[node.name] = self._measure(executed, own)
        inherited, torch_error, onnx_error = found.inherited, found.torch_vs_float64, found.onnx_vs_float64
        known_error = None if self.held else torch_error  # torch's own says nothing of a coarser dtype
        floor = noise_floor(precision, inherited.scale or 0.0, known_error, expected.numel())
        is_astray = not is_noise(inherited, floor, onnx_error)
        self._mark(node, is_astray)
        local, reason = _local(executed, found.local, held, onnx)
        lost = None if held is None else what_is_lost(executed.reference, held, torch_error)
        has_moved = is_astray and (local is None or not _is_unmoved(own, executed.local))
        return self._row(
            node,
            expected,
            _status(local, reason or lost, has_moved, inherits),
            reason=reason or lost,
            onnx_value=onnx.name,
            onnx_nodes=onnx.nodes,
            op_types=onnx.op_types,
            fused=onnx.fused,
            computed_in=onnx.computed_in,
            held_in=onnx.held_in,
            is_unstable=local is not None and reason is not None,
            inherited=inherited,
            local=local.distance if local else None,
            noise_floor=local.noise_floor if local else floor,
            torch_vs_float64=torch_error,
            onnx_vs_float64=onnx_error,
            local_torch_vs_float64=local.torch_vs_float64 if local else None,
            local_onnx_vs_float64=local.onnx_vs_float64 if local else None,
        )

    def _measure(self, executed: Executed, own: torch.Tensor) -> Measured:
        """Nothing is measured twice where a value only shows an earlier one, in whatever shape."""
        expected, exact = executed.step.value, executed.step.exact
        local = _first(executed.local) if executed.expected is None else None
        before = self._measured.get(executed.shows or "")
        is_same = (
            local is not None and own.shape == local.shape == expected.shape and are_same_elements(local, expected)
        )
        if is_same and before is not None and before.inherited.max_abs is not None:
            return before.shown(tuple(expected.shape))
        measured = measure(expected, own, local, exact if exact.dtype == torch.float64 else None)
        return measured.between("torch", "ONNX")

    def _precision(self, node: fx.Node, dtype: torch.dtype) -> torch.dtype | None:
        own = coarsest([dtype, self.held.get(node.name, dtype)]) if dtype.is_floating_point else None
        before = [p for operand in _operands(node) if (p := self.precisions.get(operand, _traced(operand)))]
        self.precisions[node] = own and coarsest([own, *before])
        return self.precisions[node]

    def _mark(self, node: fx.Node, is_astray: bool) -> None:
        if is_astray:
            self.astray.add(node)

    def _row(self, node: fx.Node, expected: torch.Tensor, status: Status, **measured: object) -> Row:
        origin, call = Provenance.of(node, self.run.phase), shown_call(node)
        return Row(
            phase=self.run.phase,
            graph=self.run.index,
            run=self.run.number,
            fx_node=node.name,
            call=call.name,
            target=target_name(call),
            module=self.run.module_of(node),
            source=origin.source,
            code=source_code(call),
            operands=tuple(operand.name for operand in _operands(node)),
            dtype=dtype_name(expected.dtype),
            shape=tuple(expected.shape),
            status=status,
            **measured,  # type: ignore[arg-type]
        )


def _first(runs: Sequence[torch.Tensor | ExecutionError]) -> torch.Tensor | None:
    """What the nodes made of torch's operands, unless they fail on them."""
    values = [run for run in runs if isinstance(run, torch.Tensor)]
    return values[0] if values and len(values) == len(runs) else None


def _status(local: LocalError | None, reason: str | None, has_moved: bool, inherits: bool) -> Status:
    """What the ONNX nodes do on torch's operands decides, where they run there, and else whether what is read departs.

    ``has_moved``: the value is more than noise apart, and not for what its own nodes make of torch's operands.
    """
    if reason is not None:
        return "inherits" if inherits and local is None else "diverges"
    if local is not None and not local.is_noise:
        return "diverges"
    if not has_moved:
        return "ok"
    return "inherits" if inherits or local is not None else "diverges"


def _is_unmoved(own: torch.Tensor, runs: Sequence[torch.Tensor | ExecutionError]) -> bool:
    """Whether ONNX makes of its own operands what it makes of torch's: nothing has come down to it."""
    local = _first(runs)
    return local is not None and distance(local, own).equal


def _local(
    executed: Executed, whole: Distance | None, held: torch.dtype | None, onnx: OnnxValue
) -> tuple[LocalError | None, str | None]:
    """The local error, and what else there is to say: that the nodes fail on torch's operands, or are not stable."""
    step, runs = executed.step, executed.local
    failed = next((run for run in runs if isinstance(run, ExecutionError)), None)
    if failed is not None:
        return None, f"on torch's operands: {failed}"
    values = [run for run in runs if isinstance(run, torch.Tensor)]
    if not values:
        return None, None
    expected, value = executed.reference, values[0]
    if held is not None and value.dtype == expected.dtype:
        expected, value = as_held(expected, held).to(held), value.to(held)
    if whole is None:
        whole = distance(expected, value).between("torch", "ONNX")
    local = local_error(executed.replay, step.node, expected, value, whole, rounds_between=onnx.rounds_between)
    changes = sum(not distance(values[0], other).equal for other in values[1:])
    return (
        local,
        f"changes from run to run on the same operands: {changes} of {len(values) - 1} differ" if changes else None,
    )


def _operands(node: fx.Node) -> list[fx.Node]:
    """The nodes whose values a node reads; ``getitem`` reads what the op it belongs to reads."""
    operands = []
    for operand in node.all_input_nodes:
        is_tuple = isinstance(operand.meta.get("val"), (tuple, list))
        operands.extend(operand.all_input_nodes if is_tuple else [operand])
    return operands


def _traced(node: fx.Node) -> torch.dtype | None:
    value = node.meta.get("val")
    return coarsest([value.dtype]) if isinstance(value, torch.Tensor) else None
