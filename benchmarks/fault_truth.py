"""What a fault does to the one op that it is in: its ONNX nodes, faulty and clean, on the reference's operands."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import onnx
import torch
from planted import Fault, Site, fx_nodes, onnx_type, plant

from dort_compare.align import values_of_fx_nodes
from dort_compare.errors import DortError
from dort_compare.trace import GraphRun, lockstep, onnx_values
from dort_compare.trace.onnx import initializers

Values = Mapping[str, torch.Tensor]


class Clean:
    """A clean run: its ONNX values, with torch's in the place of those that stand for an FX node."""

    def __init__(self, run: GraphRun) -> None:
        self.run = run
        self.constants = initializers(run.onnx_model)
        self.names = {fx: value.name for fx, value in values_of_fx_nodes(run.onnx_model).items()}
        inputs = {name: torch.as_tensor(value) for name, value in run.inputs.items()}
        own = dict(onnx_values(run.onnx_model, run.inputs, run.providers))
        torchs = {
            self.names[step.node.name]: step.value
            for step in lockstep(run.graph_module, tuple(run.inputs.values()))
            if step.node.name in self.names and isinstance(step.value, torch.Tensor)
        }
        same = {n: v for n, v in torchs.items() if (v.dtype, v.shape) == (own[n].dtype, own[n].shape)}
        self.values: Values = {**inputs, **own, **same}
        self._results: dict[tuple[str, ...], Values] = {}

    def sites(self) -> list[Site]:
        """The ONNX nodes that were made for FX nodes, in order."""
        found, earlier = [], [name for name in self.run.inputs if name in self.values]
        for node in self.run.onnx_model.graph.node:
            if fx_nodes(node):
                found.append(Site(node, self.values, self.constants, list(earlier)))
            earlier += [name for name in node.output if name]
        return found

    def moved(self, fault: Fault, floors: Mapping[str, float]) -> float | None:
        """How far the fault moves its op's results, in units of the noise floors, by ONNX value; the largest.

        Infinite where NaN or inf comes or goes, and where the floor is zero. None where ONNX Runtime does not run the
        fault, or gives another dtype or shape.
        """
        group = [node for node in self.run.onnx_model.graph.node if set(fx_nodes(node)) & set(fault.fx_nodes)]
        if fault.fx_nodes not in self._results:
            self._results[fault.fx_nodes] = self._run(group) or {}
        right, wrong = self._results[fault.fx_nodes], self._run(group, fault)
        results = self._results_of(group)
        if not right or wrong is None or not results:
            return None
        if any((right[n].dtype, right[n].shape) != (wrong[n].dtype, wrong[n].shape) for n in results):
            return None
        return max(_share(right[name], wrong[name], floors.get(name, 0.0)) for name in results)

    def _results_of(self, group: Sequence[onnx.NodeProto]) -> list[str]:
        stand_for_fx = set(self.names.values())
        return [name for node in group for name in node.output if name in stand_for_fx]

    def _run(self, group: Sequence[onnx.NodeProto], fault: Fault | None = None) -> Values | None:
        model = onnx.ModelProto()
        model.CopyFrom(self.run.onnx_model)
        del model.graph.node[:], model.graph.output[:], model.graph.input[:], model.graph.value_info[:]
        model.graph.node.extend(group)
        if fault is not None:
            model = plant(model, [fault])
        made = {name for node in model.graph.node for name in node.output}
        known = {tensor.name for tensor in model.graph.initializer} | made
        read = dict.fromkeys(n for node in model.graph.node for n in node.input if n and n not in known)
        feeds = {name: self.values[name] for name in read}
        model.graph.input.extend(
            onnx.helper.make_tensor_value_info(name, onnx_type(value.dtype), list(value.shape))
            for name, value in feeds.items()
        )
        used = {n for node in model.graph.node for n in node.input}
        kept = [tensor for tensor in model.graph.initializer if tensor.name in used]
        del model.graph.initializer[:]
        model.graph.initializer.extend(kept)
        try:
            return dict(onnx_values(model, feeds, self.run.providers))
        except DortError:
            return None


def _share(right: torch.Tensor, wrong: torch.Tensor, floor: float) -> float:
    right, wrong = right.double(), wrong.double()
    same = (right == wrong) | (right.isnan() & wrong.isnan())
    gap = (right - wrong).abs().masked_fill(same, 0)
    largest = float(gap.nan_to_num(nan=math.inf).max()) if gap.numel() else 0.0
    if largest == 0:
        return 0.0
    return largest / floor if floor else math.inf
