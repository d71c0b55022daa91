"""Faults: one ONNX node of a lowered model replaced by others, with the same outputs and the same provenance."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch

from dort_compare.provenance import FX_NODE

_FLOAT, _BFLOAT16 = onnx.TensorProto.FLOAT, onnx.TensorProto.BFLOAT16


@dataclass(frozen=True)
class Fault:
    """What stands in the place of the ONNX node called ``node``, which was made for the FX nodes ``fx_nodes``."""

    kind: str
    what: str
    node: str
    fx_nodes: tuple[str, ...]
    replacement: tuple[onnx.NodeProto, ...]
    constants: tuple[onnx.TensorProto, ...] = ()


def plant(model: onnx.ModelProto, faults: Sequence[Fault]) -> onnx.ModelProto:
    """A copy of ``model`` with every fault in it."""
    at = {fault.node: fault for fault in faults}
    faulty = onnx.ModelProto()
    faulty.CopyFrom(model)
    del faulty.graph.node[:]
    for node in model.graph.node:
        faulty.graph.node.extend(at[node.name].replacement if node.name in at else [node])
    for fault in faults:
        faulty.graph.initializer.extend(fault.constants)
    return faulty


@dataclass(frozen=True)
class Site:
    """An ONNX node, with the values of a clean run by name, ``earlier`` those before it, and the model's constants."""

    node: onnx.NodeProto
    values: Mapping[str, torch.Tensor]
    constants: Mapping[str, torch.Tensor]
    earlier: Sequence[str]

    @property
    def fx_nodes(self) -> tuple[str, ...]:
        return tuple(fx_nodes(self.node))

    def value(self, name: str) -> torch.Tensor:
        return self.values[name] if name in self.values else self.constants[name]

    def inputs(self) -> list[torch.Tensor]:
        """The operands; what an optional one that is left out stands for is nobody's."""
        return [self.value(name) for name in self.node.input if name]

    def output(self) -> torch.Tensor:
        return self.value(self.node.output[0])

    def constant(self, position: int) -> torch.Tensor | None:
        """The operand at a position, where it is a constant."""
        return self.constants.get(self.node.input[position]) if position < len(self.node.input) else None

    def attributes(self) -> dict[str, Any]:
        return {a.name: onnx.helper.get_attribute_value(a) for a in self.node.attribute}


class Draft:
    """Collects the nodes that will stand in the place of one."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, value: torch.Tensor) -> str:
        """A new constant; returns its name."""
        name = self._name("const")
        self.constants.append(_tensor(name, value))
        return name

    def shape(self, shape: Sequence[int]) -> str:
        return self.constant(torch.tensor(list(shape), dtype=torch.int64))

    def node(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """A node between; returns the name of its output."""
        name = self._name(op_type)
        self._add(op_type, inputs, [name], attributes)
        return name

    def last(self, op_type: str, *inputs: str, floating: Sequence[int] = (), **attributes: Any) -> Draft:
        """The node that writes what the replaced one wrote.

        ``floating`` are the positions of operands in the dtype of the result. Where that is bfloat16, for which ONNX
        Runtime has few kernels, the node computes in float32.
        """
        if not floating or self.site.output().dtype != torch.bfloat16:
            self._add(op_type, inputs, self.site.node.output, attributes)
            return self
        wide = [self.node("Cast", n, to=_FLOAT) if i in floating else n for i, n in enumerate(inputs)]
        return self.last("Cast", self.node(op_type, *wide, **attributes), to=_BFLOAT16)

    def same(self, *, inputs: Mapping[int, str] | None = None, op_type: str = "", **attributes: Any) -> Draft:
        """The replaced node with other inputs at some positions, of another type, or with other attributes."""
        node = self.site.node
        changed = [(inputs or {}).get(i, name) for i, name in enumerate(node.input)]
        self._add(op_type or node.op_type, changed, node.output, {**self.site.attributes(), **attributes})
        return self

    def behind(self) -> str:
        """The replaced node as it was, under another output name, to which something can be done; returns that."""
        node = self.site.node
        name = self._name("right")
        self._add(node.op_type, node.input, [name, *node.output[1:]], self.site.attributes())
        return name

    def fault(self, kind: str, what: str) -> Fault:
        node = self.site.node
        for position, made in enumerate(self.nodes):
            made.name = node.name if made is self.nodes[-1] else f"{node.name}.fault.{position}"
            made.metadata_props.extend(node.metadata_props)
        return Fault(kind, what, node.name, self.site.fx_nodes, tuple(self.nodes), tuple(self.constants))

    def _add(self, op_type: str, inputs: Sequence[str], outputs: Sequence[str], attributes: Mapping[str, Any]) -> None:
        self.nodes.append(onnx.helper.make_node(op_type, list(inputs), list(outputs), **attributes))
        if op_type == self.site.node.op_type:
            self.nodes[-1].domain = self.site.node.domain

    def _name(self, word: str) -> str:
        return f"{self.site.node.output[0]}.fault.{len(self.nodes)}.{len(self.constants)}.{word}"


def fx_nodes(node: onnx.NodeProto) -> list[str]:
    """The FX nodes that an ONNX node was made for."""
    return next((entry.value.split() for entry in node.metadata_props if entry.key == FX_NODE), [])


def onnx_type(dtype: torch.dtype) -> int:
    """The number of a dtype in ONNX."""
    names = {"float32": "FLOAT", "float64": "DOUBLE", "complex64": "COMPLEX64", "complex128": "COMPLEX128"}
    name = str(dtype).removeprefix("torch.")
    return int(onnx.TensorProto.DataType.Value(names.get(name, re.sub("_", "", name).upper())))


def _tensor(name: str, value: torch.Tensor) -> onnx.TensorProto:
    value = value.detach().cpu().contiguous()
    raw = np.frombuffer(value.reshape(-1).view(torch.uint8).numpy().tobytes(), dtype=np.uint8)
    return onnx.helper.make_tensor(name, onnx_type(value.dtype), list(value.shape), raw.tobytes(), raw=True)
