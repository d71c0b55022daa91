"""What a session on CUDA asks of torch and of ONNX Runtime, with the CPU's kernels in the place of CUDA's."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any

import onnx
import onnxruntime as ort
import pytest
import torch

from dort_compare.runtime import SessionSettings
from dort_compare.runtime.binding import Binding
from dort_compare.runtime.session import Session, make_session

CUDA, CPU = torch.device("cuda", 0), torch.device("cpu")
UNSYNCHRONIZED = "disable_synchronize_execution_providers"
RESHAPE = """<ir_version: 10, opset_import: ["" : 18]>
agraph (float[2] x, int64[1] size, int64[1] unread) => (float[N] y) { y = Reshape(x, size) }"""
INPUTS = {"x": torch.ones(2), "size": torch.tensor([2]), "unread": torch.tensor([3])}
OnCuda = Callable[[], Session]


class Stream:
    """In the place of torch's default stream."""

    device, device_index = CUDA, 0

    def __init__(self) -> None:
        self.waits = 0

    def synchronize(self) -> None:
        self.waits += 1


class OnCpu(ort.InferenceSession):
    """A session on the CPU that says it is on CUDA."""

    def __init__(self, model: bytes, options: Any, providers: Any, **rest: Any) -> None:
        super().__init__(model, options, ["CPUExecutionProvider"], **rest)

    def get_providers(self) -> list[str]:
        return ["CUDAExecutionProvider", "CPUExecutionProvider"]


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Stream:
    made = Stream()
    monkeypatch.setattr(ort, "InferenceSession", OnCpu)
    monkeypatch.setattr(torch.cuda, "default_stream", lambda _: made)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: made)
    return made


@pytest.fixture
def on_cuda(stream: Stream) -> OnCuda:
    providers: list[tuple[str, dict[str, Any]]] = [("CUDAExecutionProvider", {}), ("CPUExecutionProvider", {})]
    return lambda: make_session(onnx.parser.parse_model(RESHAPE), SessionSettings(), providers)


@pytest.mark.parametrize(("device", "waits"), [(CUDA, False), (CPU, True)])
def test_a_run_waits_for_results_on_the_cpu_alone(
    on_cuda: OnCuda, monkeypatch: pytest.MonkeyPatch, device: torch.device, waits: bool
) -> None:
    told: list[bool] = []

    def run(self: Binding, tensors: Sequence[torch.Tensor], options: ort.RunOptions) -> list[torch.Tensor]:
        try:
            told.append(options.get_run_config_entry(UNSYNCHRONIZED) == "1")
        except RuntimeError:  # it has no such entry
            told.append(False)
        return []

    monkeypatch.setattr(Binding, "run", run)
    on_cuda().run(INPUTS, {"y": device})
    assert told == [not waits]


def test_what_kernels_read_on_the_cpu_is_copied_there_by_torch(
    on_cuda: OnCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here that is all that a node reads; ONNX Runtime says it of the rest too."""
    copied: list[float] = []
    monkeypatch.setattr(torch.Tensor, "cpu", lambda self: copied.append(self.sum().item()) or self)
    (y,) = on_cuda().run(INPUTS, {"y": CPU})
    assert torch.equal(y, torch.ones(2))
    assert copied == [2, 2]


def test_without_memory_a_run_begins_again_with_what_torch_keeps(
    on_cuda: OnCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleared: list[bool] = []
    ready = Binding.run

    def run(self: Binding, tensors: Sequence[torch.Tensor], options: ort.RunOptions) -> list[torch.Tensor]:
        if not cleared:
            raise RuntimeError("Failed to allocate memory for requested buffer of size 4")
        return ready(self, tensors, options)

    monkeypatch.setattr(Binding, "run", run)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: cleared.append(True))
    (y,) = on_cuda().run(INPUTS, {"y": CPU})
    assert torch.equal(y, torch.ones(2))
    assert len(cleared) == 1


def test_another_failure_is_told_at_once(on_cuda: OnCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: pytest.fail("memory is not what is missing"))
    with pytest.raises(Exception, match="Reshape"):
        on_cuda().run({**INPUTS, "size": torch.tensor([3])}, {"y": CPU})


def test_a_session_ends_when_its_stream_has(on_cuda: OnCuda, stream: Stream) -> None:
    session = on_cuda()
    session.run(INPUTS, {"y": CPU})
    assert not stream.waits
    del session
    gc.collect()
    assert stream.waits == 1
