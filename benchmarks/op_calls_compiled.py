"""One call, compiled and in eager torch: are the values equal, and did anything leave ONNX Runtime?

With the two settings that let dynamo capture what depends on data (without them it gives such ops to no backend), but
for calls that torch's own aot_eager backend fails at with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from dort_compare import DebugBackend

CAPTURING = {"capture_dynamic_output_shape_ops": True, "capture_scalar_outputs": True}
"""Settings of ``torch._dynamo.config``."""
Results = Sequence[Tensor]
Function = Callable[..., Any]


@dataclass
class Outcome:
    """``forward`` and ``gradient`` say what is wrong ("" if nothing; None where nothing was computed);
    ``fallen_back`` holds (phase, op, reason) of what ran in eager torch.
    """

    forward: str | None = None
    gradient: str | None = None
    fallen_back: list[tuple[str, str, str]] = field(default_factory=list)


def compiled_outcome(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outcome | None:
    """Runs ``function`` in eager torch and compiled, each with fresh random state; None where eager torch refuses."""
    try:
        eager = _run(function, args, kwargs)
    except Exception:  # noqa: BLE001  (an input that torch itself does not accept)
        return None
    exact = _in_float64(function, args, kwargs)
    again = _run(function, args, kwargs)
    backend, got = _compiled(function, args, kwargs)
    if isinstance(got, Exception):
        text = f"{type(got).__name__}: {' '.join(str(got).split())[:300]}"
        return Outcome(text, text if eager[1] is not None else None, _fallen_back(backend))
    forward = _difference(got[0], eager[0], exact and exact[0], again[0])
    gradient = None
    if eager[1] is not None and again[1] is not None:
        gradient = _difference(got[1] or (), eager[1], exact and exact[1], again[1])
    return Outcome(forward, gradient, _fallen_back(backend))


def _compiled(
    function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[DebugBackend, tuple[Results, Results | None] | Exception]:
    """What comes of it with the settings or, where torch's own aot_eager fails with them too, without."""
    outcome: tuple[Results, Results | None] | Exception
    for settings in (CAPTURING, {}):
        backend = DebugBackend(max_runs=0)
        try:
            return backend, _run_compiled(function, args, kwargs, backend, settings)
        except Exception as error:  # noqa: BLE001  (whatever it is, it is the outcome)
            outcome = error
        if not _torch_fails_too(function, args, kwargs):
            break
    return backend, outcome


def _run_compiled(
    function: Function, args: tuple[Any, ...], kwargs: dict[str, Any], backend: Any, settings: dict[str, bool]
) -> tuple[Results, Results | None]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    with torch._dynamo.config.patch(**settings):
        return _run(torch.compile(function, backend=backend, dynamic=False), args, kwargs)


def _torch_fails_too(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    try:
        _run_compiled(function, args, kwargs, "aot_eager", CAPTURING)
    except Exception:  # noqa: BLE001
        return True
    return False


def _run(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Results, Results | None]:
    """The tensors that a call returns and, where they have any, the gradients of their sum with fixed weights."""
    torch.manual_seed(0)
    leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor) and leaf.requires_grad]
    outputs = [leaf for leaf in tree_leaves(function(*args, **kwargs)) if isinstance(leaf, Tensor)]
    differentiable = [output for output in outputs if output.requires_grad]
    if not leaves or not differentiable:
        return [output.detach() for output in outputs], None
    weights = [torch.linspace(-1, 1, o.numel()).reshape(o.shape).to(o) for o in differentiable]
    gradients = torch.autograd.grad(differentiable, leaves, weights, allow_unused=True)
    return [output.detach() for output in outputs], [gradient for gradient in gradients if gradient is not None]


def _in_float64(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    def widened(value: Any) -> Any:
        if isinstance(value, Tensor) and value.is_floating_point():
            return value.detach().double().requires_grad_(value.requires_grad)
        return torch.float64 if isinstance(value, torch.dtype) and value.is_floating_point else value

    try:
        return _run(function, *tree_map(widened, (args, kwargs)))
    except Exception:  # noqa: BLE001  (not every op has a float64 kernel)
        return None


def _fallen_back(backend: DebugBackend) -> list[tuple[str, str, str]]:
    fallen = {(each.phase, each.target, each.reason) for each in backend.fallbacks}
    breaks = torch._dynamo.utils.counters["graph_break"]
    fallen |= {("forward", "graph break", " ".join(str(reason).split())[:120]) for reason in breaks}
    if not breaks and not backend.graphs and not fallen:
        fallen.add(("forward", "no graph", "torch.compile left the call in eager torch"))
    return sorted(fallen)


def _difference(got: Results, eager: Results, exact: Results | None, again: Results) -> str:
    if len(got) != len(eager):
        return f"{len(got)} tensors, eager: {len(eager)}"
    exacts = exact if exact is not None and len(exact) == len(eager) else [None] * len(eager)
    problems = (_of_one(*tensors) for tensors in zip(got, eager, exacts, again, strict=True))
    return next((problem for problem in problems if problem), "")


def _of_one(got: Tensor, eager: Tensor, exact: Tensor | None, again: Tensor) -> str:
    if (got.dtype, got.shape, got.layout) != (eager.dtype, eager.shape, eager.layout):
        return f"{got.dtype} {list(got.shape)} {got.layout}, eager: {eager.dtype} {list(eager.shape)} {eager.layout}"
    if eager.layout is not torch.strided:
        got, eager, again = got.to_dense(), eager.to_dense(), again.to_dense()
        exact = None
    if not _equal(again, eager):
        return ""  # eager torch does not repeat itself: the values are unspecified
    if _equal(got, eager):
        return ""
    if not (eager.dtype.is_floating_point or eager.dtype.is_complex):
        return "other values than eager's"
    return _of_floats(got, eager, exact)


def _of_floats(got: Tensor, eager: Tensor, exact: Tensor | None) -> str:
    """By torch.testing's default tolerances or, where float64 is known, by the distance from that: at most four times
    eager's own, or eight units of the last place of the largest element."""
    try:
        torch.testing.assert_close(got, eager, equal_nan=True)
    except AssertionError as problem:
        if exact is None or exact.shape != eager.shape or not exact.dtype.is_floating_point:
            return " ".join(str(problem).split())[:200]
    else:
        return ""
    finite = eager.isfinite() & exact.isfinite()
    if not _equal(got[~finite], eager[~finite]):
        return "not finite where eager is, or the other way round"
    ours, theirs = ((side.double() - exact)[finite].abs() for side in (got, eager))
    largest = exact[finite].abs().max() if exact[finite].numel() else 0.0
    allowed = max(4 * _largest(theirs), 8 * torch.finfo(eager.dtype).eps * float(largest))
    return "" if _largest(ours) <= allowed else f"{_largest(ours):.2g} from float64, eager {_largest(theirs):.2g}"


def _largest(values: Tensor) -> float:
    return float(values.max()) if values.numel() else 0.0


def _equal(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)
