"""What tests of several rooms share."""

from __future__ import annotations

import gc
import logging
import uuid
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest
import torch
from hypothesis import HealthCheck, settings
from torch._dynamo import guards
from torch.onnx._internal.exporter._registration import ONNXRegistry

from dort_compare import DebugBackend
from dort_compare.backends import CompiledGraph
from dort_compare.cache.folder import FOLDER_VARIABLE
from dort_compare.lowering import registry
from dort_compare.lowering.builder import Builder
from dort_compare.lowering.precision import in_float32
from dort_compare.runtime import program
from dort_compare.runtime.kernels import with_kernels

GraphsOf = Callable[..., list[CompiledGraph]]

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_collection_finish() -> None:
    """What was imported stays: the garbage collector need not look through it a thousand times."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test sees what another one compiled or drew; guards are not timed, for which torch empties the caches."""
    monkeypatch.setattr(guards, "profile_guard_manager", lambda *_: 0.0, raising=False)
    torch.default_generator.manual_seed(0)
    yield
    torch._dynamo.reset()


@pytest.fixture(autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a test keeps compiled graphs, rather than in the user's home: a folder of its own, made when it is used."""
    folder = tmp_path_factory.getbasetemp() / "caches" / uuid.uuid4().hex
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))
    return folder


@pytest.fixture(autouse=True, scope="session")
def _one_registry() -> Iterator[None]:
    """``torch.onnx.export`` parses the source of every function it knows anew in each call, in two seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ONNXRegistry, "from_torchlib", staticmethod(cache(ONNXRegistry.from_torchlib)))
        yield


@pytest.fixture
def graphs_of() -> GraphsOf:
    """``graphs_of(function, *args)``: the graphs of a call and, where it requires grad, of its backward."""

    def graphs(
        function: Callable[..., Any], *args: Any, dynamic: bool | None = None, **options: Any
    ) -> list[CompiledGraph]:
        backend = DebugBackend(**{"fallback": False, **options})
        result = torch.compile(function, backend=backend, dynamic=dynamic)(*args)
        if result.requires_grad:
            result.sum().backward()
        return backend.graphs

    return graphs


@pytest.fixture
def as_onnx_runtime_casts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Float16 nodes without a kernel are left to ONNX Runtime's casts, which leave out roundings between them."""
    monkeypatch.setattr(program, "with_kernels", partial(with_kernels, dtypes=[ir.DataType.BFLOAT16]))


@pytest.fixture
def lowered_for_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lowerings write what they write for CUDA, wherever it runs."""
    monkeypatch.setattr(Builder, "on_cuda", True)


@pytest.fixture
def sizes_captured() -> Iterator[None]:
    """dynamo leaves in the graph what has a size or a number that depends on data."""
    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        yield


@pytest.fixture
def silu_by_sigmoid(monkeypatch: pytest.MonkeyPatch) -> None:
    """SiLU is what ONNX Runtime fuses to QuickGelu; its Sigmoid is no less than that of -18, or 0."""
    by_sigmoid = in_float32(lambda op, x: op.Mul(x, op.Sigmoid(x)))
    monkeypatch.setitem(registry._TABLE, torch.ops.aten.silu.default, by_sigmoid)


@pytest.fixture
def said_by(caplog: pytest.LogCaptureFixture) -> Callable[[str], list[str]]:
    """``said_by(logger)``: what a logger of ours, which tells everything here, has said in the test so far."""
    caplog.set_level(logging.DEBUG, "dort_compare")
    return lambda logger: [record.getMessage() for record in caplog.records if record.name == logger]
