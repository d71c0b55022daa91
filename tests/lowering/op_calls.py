"""Calls of single ATen overloads: recorded from torch's own operator samples, lowered one by one, measured."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import SEED
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_map_only, tree_unflatten

from dort_compare.dtypes import in_parts
from dort_compare.lowering import Lowered, lower
from dort_compare.runtime import Program, SessionSettings

CPU = SessionSettings(("cpu",), {"intra_op_num_threads": 1})
"""One thread, for that is quicker here."""
Target = Callable[..., Any]


@dataclass(frozen=True)
class Call:
    """One overload with its arguments."""

    target: Target
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def __call__(self) -> Any:
        return self.target(*self.args, **self.kwargs)

    def __str__(self) -> str:
        described = [_described(arg) for arg in self.args] + [f"{k}={_described(v)}" for k, v in self.kwargs.items()]
        return f"{self.target}({', '.join(described)})"

    def in_float64(self, integers: bool = False) -> Call:
        """The same call on floating arguments in float64, asking for float64 where it asks for a floating dtype.

        With ``integers`` those too: torch's kernels take the sine of one, say, in float32, which is not exact.
        """
        args, kwargs = tree_map(partial(_widened, integers=integers), (self.args, self.kwargs))
        return Call(self.target, args, kwargs)

    def graph(self) -> fx.GraphModule:
        """A graph of this call alone; its placeholders are ``inputs()``."""
        graph = fx.Graph()
        leaves, spec = tree_flatten((self.args, self.kwargs))
        with FakeTensorMode(shape_env=ShapeEnv()) as mode:
            nodes: list[Any] = []
            fakes: list[Any] = []
            for leaf in leaves:
                is_tensor = isinstance(leaf, Tensor)
                fakes.append(mode.from_tensor(leaf, static_shapes=True) if is_tensor else leaf)
                nodes.append(graph.placeholder(f"x{len(nodes)}") if is_tensor else leaf)
                if is_tensor:
                    nodes[-1].meta["val"] = fakes[-1]
            args, kwargs = tree_unflatten(nodes, spec)
            node = graph.call_function(self.target, args, kwargs)
            fake_args, fake_kwargs = tree_unflatten(fakes, spec)
            node.meta["val"] = self.target(*fake_args, **fake_kwargs)
        graph.output(_elements(graph, node))
        return fx.GraphModule({}, graph)

    def is_traced_as_computed(self) -> bool:
        """Whether torch traces the dtypes that its kernel returns, as older releases do not for all overloads."""
        traced = next(node.meta["val"] for node in self.graph().graph.nodes if node.op == "call_function")
        pairs = zip(_each(traced), _each(self()), strict=False)
        return all(fake.dtype == x.dtype for fake, x in pairs if isinstance(fake, Tensor) and isinstance(x, Tensor))

    def inputs(self) -> list[Tensor]:
        return [leaf for leaf in tree_leaves((self.args, self.kwargs)) if isinstance(leaf, Tensor)]

    def lowered(self, opset: int) -> Lowered:
        """This call as a checked ONNX model."""
        lowered = lower(self.graph(), "inference", opset)
        onnx.checker.check_model(ir.to_proto(lowered.model), full_check=True)
        return lowered

    def on_onnx_runtime(self, opset: int, settings: SessionSettings = CPU) -> list[Any]:
        lowered = self.lowered(opset)
        return Program(lowered.model, lowered.signature, settings)(*self.inputs())


def outputs_of(result: Any) -> list[Tensor]:
    """The tensors that a call returned, in order."""
    return [value for value in _each(result) if value is not None]


def _each(result: Any) -> Sequence[Any]:
    return result if isinstance(result, (tuple, list)) else [result]


def _elements(graph: fx.Graph, node: fx.Node) -> tuple[fx.Node, ...]:
    """The outputs of a call as FX nodes: the call, or one ``getitem`` for each tensor that it returns."""
    meta = node.meta["val"]
    if not isinstance(meta, (tuple, list)):
        return (node,)
    elements = []
    for i, value in enumerate(meta):
        if isinstance(value, Tensor):
            elements.append(graph.call_function(operator.getitem, (node, i)))
            elements[-1].meta["val"] = value
    return tuple(elements)


def _widened(value: Any, integers: bool) -> Any:
    if _is_float(value) or (integers and isinstance(value, Tensor) and value.dtype != torch.bool):
        return value.double()
    if isinstance(value, Tensor) and value.is_complex():
        return value.to(torch.complex128)
    return torch.float64 if isinstance(value, torch.dtype) and value.is_floating_point else value


def _described(value: Any) -> str:
    describe = lambda t: f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}"  # noqa: E731
    return str(tree_map_only(Tensor, describe, value)).replace("'", "")


class _Recorder(TorchDispatchMode):
    """Keeps the calls of one overload, with copies of their tensors."""

    def __init__(self, target: Target) -> None:
        super().__init__()
        self.target = target
        self.calls: list[Call] = []

    def __torch_dispatch__(self, func: Target, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func == self.target:
            with torch.utils._python_dispatch._disable_current_modes():
                copies = tree_map_only(Tensor, lambda t: t.detach().clone(), (args, kwargs))
            self.calls.append(Call(func, *copies))
        return func(*args, **kwargs)


def record(target: Target, function: Callable[[], Any]) -> list[Call]:
    """The calls of ``target`` that ``function`` and, where its results have a gradient, its backward make."""
    with _Recorder(target) as recorder:
        results = [value for value in tree_leaves(function()) if isinstance(value, Tensor) and value.requires_grad]
        if results:
            torch.autograd.backward(results, [torch.linspace(-1, 1, r.numel()).reshape(r.shape).to(r) for r in results])
    return recorder.calls


@cache
def op_info(name: str) -> OpInfo | None:
    """torch's description of an operator, ``name`` or ``name.variant``; older releases have fewer."""
    return next((info for info in op_db if name == ".".join(filter(None, (info.name, info.variant_test_name)))), None)


def samples(info: OpInfo, dtype: torch.dtype, with_gradient: bool) -> Iterator[SampleInput]:
    """What ``info.sample_inputs`` gives, which looks for the running test in all the sources of pytest's stack: in a
    third of a second."""
    made = iter(info.sample_inputs_func(info, "cpu", dtype, with_gradient))
    while True:
        reseed()
        sample = next(made, None)
        if sample is None:
            return
        yield sample


def reseed() -> None:
    """The same samples in every run. ``torch.manual_seed`` takes milliseconds, for it notes the stack for each GPU."""
    torch.default_generator.manual_seed(SEED)
    random.seed(SEED)
    np.random.seed(SEED)


def recorded(target: Target, info_name: str, dtype: torch.dtype) -> Iterator[Call]:
    """Calls of ``target`` that torch's samples for an operator reach, each signature once."""
    info = op_info(info_name)
    if info is None or not info.supports_dtype(dtype, "cpu"):
        return
    with_gradient = info.supports_autograd and dtype in info.supported_backward_dtypes("cpu")
    seen = set()
    for sample in samples(info, dtype, with_gradient):
        run = lambda s=sample: info.op(s.input, *s.args, **s.kwargs)  # noqa: E731
        for call in record(target, run):
            if str(call) not in seen:
                seen.add(str(call))
                yield call


def distance(actual: Tensor, exact: Tensor, counted: Tensor) -> float:
    """The largest difference from ``exact`` among the ``counted`` elements."""
    difference = (actual.double() - exact.double()).abs()[counted]
    return difference.max().item() if difference.numel() else 0.0


def _makes_floats(call: Call, results: Sequence[Any]) -> bool:
    """Whether ``call`` computes floats of integers alone."""
    if any(_is_float(each) or each.is_complex() for each in call.inputs()):
        return False
    if call.target == torch.ops.aten.bincount.default:  # those are indices
        return False
    return all(map(_is_float, results))


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def complaint(call: Call, opset: int, units: float, scale: float = 0.0, settings: SessionSettings = CPU) -> str | None:
    """What is wrong with the ONNX result of ``call``, or None.

    Dtype and shape are torch's. Integers and booleans, and floats where ``units`` is 0, are equal. Other floats, as the
    parts of complex numbers, are not further from the float64 run than ``units`` units of the last place of its largest
    element (or of ``scale``, if larger), or twice torch's own distance. What torch computes as not finite, ONNX does
    too; where the float64 run is not finite, ONNX may agree with that, as torch's kernels do not on every processor.
    """
    results = _each(call())
    exact_results = _each(call.in_float64(integers=_makes_floats(call, results))()) if units else results
    # oneDNN's kernels also return gradients that nobody has asked for
    asked = [pair for pair in zip(results, exact_results, strict=True) if all(value is not None for value in pair)]
    for actual, (expected, exact) in zip(call.on_onnx_runtime(opset, settings), asked, strict=True):
        problem = _difference(actual, expected, exact, units, scale)
        if problem:
            return f"{call} at opset {opset}: {problem}"
    return None


def _difference(actual: Tensor, expected: Tensor, exact: Tensor, units: float, scale: float) -> str | None:
    if (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
        return f"{actual.dtype} {list(actual.shape)}, torch: {expected.dtype} {list(expected.shape)}"
    actual, expected, exact = in_parts(actual), in_parts(expected), in_parts(exact)
    if not expected.dtype.is_floating_point or not units:
        return None if _same(actual, expected) else f"{actual} is not torch's {expected}"
    finite = expected.isfinite() & exact.isfinite()
    right = torch.where(exact.isfinite(), expected, exact.to(expected.dtype))
    if not (_same(actual[~finite], expected[~finite]) or _same(actual[~finite], right[~finite])):
        return f"{actual} is not finite where torch's {expected} is, or the other way round"
    largest = max(scale, distance(exact, torch.zeros_like(exact), finite))
    allowed = max(units * torch.finfo(expected.dtype).eps * largest, 2 * distance(expected, exact, finite))
    allowed = max(allowed, torch.finfo(expected.dtype).smallest_normal)
    found = distance(actual, exact, finite)
    return None if found <= allowed else f"{found:.3g} from float64, allowed {allowed:.3g}"


def _same(actual: Tensor, expected: Tensor) -> bool:
    return torch.allclose(actual, expected, rtol=0, atol=0, equal_nan=True)


def complaints(
    calls: Iterable[Call], opset: int, units: float, scale: float = 0.0, settings: SessionSettings = CPU
) -> list[str]:
    """The complaints about every call; a failure to lower or to run is one."""
    found = []
    for call in calls:
        try:
            problem = complaint(call, opset, units, scale, settings)
        except Exception as error:  # noqa: BLE001
            problem = f"{call} at opset {opset}: {type(error).__name__}: {error}"
        if problem:
            found.append(problem)
    return found
