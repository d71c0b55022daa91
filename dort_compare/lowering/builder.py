"""What a lowering writes ONNX nodes with: ``op.Add(x, y)``."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch
from onnx_ir.tensor_adapters import TorchTensor, from_torch_dtype, to_torch_dtype
from torch import fx

from dort_compare.dtypes import HALF, dtype_name
from dort_compare.errors import UnsupportedGraphError
from dort_compare.fx_graph import reads_result
from dort_compare.lowering.inference import Inference
from dort_compare.lowering.lost_casts import would_lose_cast
from dort_compare.lowering.neutral import neutral
from dort_compare.lowering.operators import Operator
from dort_compare.lowering.reductions import OF_NOTHING, axis_from_front, empty_reduction, with_axes_from_front
from dort_compare.lowering.values import Dim, dtype_of, shape_of
from dort_compare.provenance import COMPUTED_IN, OPAQUE, NameAuthority, Provenance


class Builder:
    """Appends nodes to one ONNX graph. Names and metadata come from the FX node that is being lowered.

    Any attribute in CamelCase is an ONNX operator of the target opset: inputs first, attributes by keyword, Python
    numbers and lists become constants of the dtype that the operator's schema asks for. The methods in lower case
    are what lowerings need beside operators.
    """

    def __init__(self, graph: ir.Graph) -> None:
        self.graph = graph
        self._writes_to = graph
        self.opset = graph.opset_imports[""]
        self._value_names = NameAuthority()
        self._node_names = NameAuthority()
        self._made: set[ir.Value] = set()
        self._constants: dict[tuple[object, ...], ir.Value] = {}
        self._infer = Inference()
        self._node: fx.Node
        self._provenance: Provenance
        self._metadata: dict[str, str] = {}

    @classmethod
    def of_new_graph(cls, name: str, opset: int) -> Builder:
        return cls(ir.Graph([], [], nodes=[], opset_imports={"": opset}, name=name))

    @property
    def entered(self) -> tuple[fx.Node, Provenance]:
        """What ``enter`` was last called with."""
        return self._node, self._provenance

    def enter(self, node: fx.Node, provenance: Provenance) -> None:
        """What is written from now on belongs to ``node``."""
        self._node, self._provenance = node, provenance
        self._metadata = provenance.metadata()
        self._made = set()

    def computing_in(self, dtype: torch.dtype) -> None:
        """The rest of the current FX node is computed in ``dtype``, and its metadata says so."""
        self._metadata = {**self._metadata, COMPUTED_IN: dtype_name(dtype)}

    def made(self, value: ir.Value) -> bool:
        """Whether the current FX node's own ONNX nodes computed ``value``."""
        return value in self._made

    @contextlib.contextmanager
    def writing_to(self, graph: ir.Graph) -> Iterator[None]:
        """What is written meanwhile goes into ``graph``, nested in this one, which keeps all constants."""
        around, self._writes_to = self._writes_to, graph
        try:
            yield
        finally:
            self._writes_to = around

    def new_name(self, what: str) -> str:
        """A name that no other value of the model bears."""
        return self._value_names.mint(self._node.name, what)

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        if not op_type[0].isupper():
            raise AttributeError(op_type)

        def write(*inputs: Any, _outputs: int = 1, **attributes: Any) -> Any:
            if op_type in ("Shape", "Size") and (sizes := _known_sizes(*inputs, **attributes)) is not None:
                return self.const(sizes if op_type == "Shape" else math.prod(sizes))
            if op_type.startswith("Reduce"):
                inputs = with_axes_from_front(*inputs)
                if op_type in OF_NOTHING and (reduced := empty_reduction(*inputs)):
                    return self._of_nothing(op_type, inputs[0], reduced, **attributes)
            if op_type in ("ArgMax", "ArgMin"):
                attributes = {**attributes, "axis": axis_from_front(inputs[0], attributes["axis"])}
            return self._write(op_type, inputs, attributes, _outputs)

        return write

    def _write(self, op_type: str, inputs: Sequence[Any], attributes: Mapping[str, Any], outputs: int) -> Any:
        """Appends a node; the value that it computes, or the tuple of them where they are several."""
        operator = Operator.of(op_type, self.opset)
        node = ir.Node(
            "",
            op_type,
            [self._operand(x, dtype) for x, dtype in zip(inputs, operator.dtypes(inputs), strict=True)],
            operator.attributes_of(attributes),
            outputs=[ir.Value(name=self.new_name(op_type)) for _ in range(outputs)],
            version=self.opset,
            name=self._node_names.mint(self._node.name, op_type),
        )
        self._writes_to.append(node)
        self._made.update(node.outputs)
        self._infer(node, operator.schema)
        node.metadata_props.update(self._metadata)
        return node.outputs[0] if outputs == 1 else node.outputs

    def _of_nothing(self, op_type: str, x: ir.Value, reduced: set[int], *, keepdims: int = 1) -> ir.Value:
        """What ONNX says of a reduction of no elements, which ONNX Runtime's CUDA kernels refuse or leave unset."""
        assert x.shape is not None
        kept = [d for d in range(len(x.shape)) if keepdims or d not in reduced]
        sizes = [1 if d in reduced else self.own_size(x, d) for d in kept]
        return self.Expand(self.const(neutral(OF_NOTHING[op_type], dtype_of(x)), dtype_of(x)), self.dims(sizes))

    def _size_in_a_run(self, x: ir.Value, dim: int) -> ir.Value:
        return self.Squeeze(self.Shape(x, start=dim, end=dim + 1), [0])

    def _operand(self, x: Any, dtype: ir.DataType | None) -> ir.Value | None:
        """``x`` as an input: numbers become a constant, of ``dtype`` or of the dtype that torch gives them."""
        if x is None or isinstance(x, ir.Value):
            return x
        return self._constant(torch.tensor(x, dtype=to_torch_dtype(dtype) if dtype else None))

    # What torch computed for the node that is being lowered.

    @property
    def result(self) -> Any:
        """``meta["val"]`` of the FX node: a fake tensor, a number, a symbolic integer or a tuple of them."""
        return self._node.meta["val"]

    @property
    def result_dtype(self) -> torch.dtype:
        """The dtype of the result; of the first that is computed where the op returns a tuple."""
        results = self.result if isinstance(self.result, (tuple, list)) else [self.result]
        return next(result.dtype for result in results if result is not None)

    @property
    def on_cuda(self) -> bool:
        """Whether torch traced the result on a CUDA device, where ONNX Runtime's CUDA provider is to compute it."""
        results = self.result if isinstance(self.result, (tuple, list)) else [self.result]
        return any(isinstance(result, torch.Tensor) and result.device.type == "cuda" for result in results)

    def wanted(self, position: int) -> bool:
        """Whether the graph reads result ``position`` of an op that returns several."""
        return reads_result(self._node, position)

    def opaque(self, position: int, reason: str) -> ir.Value | None:
        """Zeros for result ``position``, marked with why they are not to be compared; None if the graph reads none."""
        if not self.wanted(position):
            return None
        fake = self.result[position]
        zeros = self._constant(torch.zeros(tuple(fake.shape), dtype=fake.dtype))
        return self.mark_opaque(self.Identity(zeros), reason)

    def mark_opaque(self, value: ir.Value, reason: str) -> ir.Value:
        """``value``, of the current FX node's own making, marked with why it is not to be compared."""
        value.metadata_props[OPAQUE] = reason
        return value

    def unsupported(self, reason: str) -> UnsupportedGraphError:
        """The error for an argument that a lowering cannot express; to be raised by the lowering."""
        where = Provenance.read(self._metadata)
        assert where is not None
        source = where.source or "source line unknown"
        return UnsupportedGraphError(f"{where.aten_target} (FX node {where.fx_node}, {source}): {reason}", reason)

    # Constants, casts and sizes.

    def const(self, value: Any, dtype: torch.dtype = torch.int64) -> ir.Value:
        """A number or a nested list as a tensor of ``dtype``: a constant, or a cast of a symbolic number."""
        if isinstance(value, ir.Value):
            return self.cast(value, dtype)
        return self._constant(torch.as_tensor(value, dtype=dtype))

    def cast(self, value: ir.Value, dtype: torch.dtype) -> ir.Value:
        """``value`` as ``dtype``; the value itself where it has it already.

        ONNX Runtime would leave out a cast right before it where that matters: to half precision of what becomes bytes,
        which goes by way of float32, and of a float to int64, which wraps around in a narrower integer.
        """
        target = from_torch_dtype(dtype)
        if value.dtype == target:
            return value
        if dtype in (torch.uint8, torch.int8) and dtype_of(value) in HALF:
            value = self.Cast(value, to=ir.DataType.FLOAT)
        if would_lose_cast(value, dtype):
            value = self.Neg(self.Neg(value))
        return self.Cast(value, to=target)

    def dims(self, sizes: Sequence[Dim]) -> ir.Value:
        """A list of sizes as one int64 vector."""
        if all(isinstance(size, int) for size in sizes):
            return self.const(list(sizes))
        parts = [self.const([size]) if isinstance(size, int) else self.Reshape(size, [-1]) for size in sizes]
        return parts[0] if len(parts) == 1 else self.Concat(*parts, axis=0)

    def size(self, value: ir.Value, dim: int) -> Dim:
        """The size of ``value`` along ``dim``: a number where it is static."""
        size = shape_of(value)[dim]
        if isinstance(size, int):
            return size
        return self._size_in_a_run(value, dim % len(shape_of(value)))

    def own_size(self, value: ir.Value, dim: int) -> Dim:
        """The size along ``dim`` of any ONNX value, not only that of an FX node."""
        assert value.shape is not None
        size = value.shape[dim]
        return size if isinstance(size, int) else self._size_in_a_run(value, dim % len(value.shape))

    # What the graph holds.

    def _constant(self, tensor: torch.Tensor) -> ir.Value:
        key = (tensor.dtype, tensor.shape, tensor.reshape(-1).view(torch.uint8).numpy(force=True).tobytes())
        if key not in self._constants:
            name = self._value_names.mint("const", dtype_name(tensor.dtype))
            self._constants[key] = self.initializer_of(tensor, name)
        return self._constants[key]

    def initializer_of(self, tensor: torch.Tensor, name: str) -> ir.Value:
        """A tensor that the graph holds, under ``name``."""
        held = TorchTensor(tensor.detach().contiguous(), name=name)
        value = ir.Value(name=name, type=ir.TensorType(held.dtype), shape=ir.Shape(tensor.shape), const_value=held)
        self.graph.register_initializer(value)
        return value


def _known_sizes(x: ir.Value, *, start: int = 0, end: int | None = None) -> list[int] | None:
    """What ``Shape`` gives, if that is known.

    It becomes a constant: a size that ONNX Runtime's CUDA provider computes may be read before it is on the host.
    """
    if x.shape is None:
        return None
    asked = list(x.shape)[start:end]
    known = [size for size in asked if isinstance(size, int)]
    return known if len(known) == len(asked) else None
