"""What a session on CUDA asks of torch and of ONNX Runtime, with the CPU's kernels in the place of CUDA's."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import onnx
import onnxruntime as ort
import pytest
import torch

from dort_compare.runtime import SessionSettings, constants, torch_memory
from dort_compare.runtime import session as session_module
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

    device = CUDA
    cuda_stream = 99

    def __init__(self, _: int = 0) -> None:
        self.waits = 0
        self.waited_for: list[object] = []

    def synchronize(self) -> None:
        self.waits += 1

    def wait_stream(self, other: object) -> None:
        self.waited_for.append(other)


class OnCpu(ort.InferenceSession):
    """A session on the CPU that says it is on CUDA."""

    told: Any = ()

    def __init__(self, model: bytes, options: Any, providers: Any, **rest: Any) -> None:
        OnCpu.told = providers
        super().__init__(model, options, ["CPUExecutionProvider"], **rest)

    def get_providers(self) -> list[str]:
        return ["CUDAExecutionProvider", "CPUExecutionProvider"]


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Stream:
    made = Stream()
    monkeypatch.setattr(ort, "InferenceSession", OnCpu)
    monkeypatch.setattr(torch.cuda, "default_stream", lambda _: made)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: made)
    monkeypatch.setattr(torch_memory, "lend", lambda _: True)
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


def test_what_nothing_reads_is_not_handed_over(on_cuda: OnCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime would copy it to the CPU, and wait for that."""
    handed: list[torch.Tensor] = []
    run = Binding.run
    monkeypatch.setattr(Binding, "run", lambda self, given, options: handed.extend(given) or run(self, given, options))
    (y,) = on_cuda().run(INPUTS, {"y": CPU})
    assert torch.equal(y, torch.ones(2))
    assert [tensor.tolist() for tensor in handed] == [[1, 1], [2]]


NESTED = """<ir_version: 10, opset_import: ["" : 18]>
agraph (bool c, float[2] x, int64[1] size) => (float[N] y) { y = If (c) <
    then_branch = yes () => (float[N] a) { a = Reshape(x, size) },
    else_branch = no () => (float[N] b) { b = Neg(x) }> }"""


def test_a_size_that_a_graph_within_reads_is_copied_too(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    session = make_session(onnx.parser.parse_model(NESTED), SessionSettings(), [("CUDAExecutionProvider", {})])
    assert session.on_cpu == {"c", "x", "size"}


def test_another_stream_waits_and_is_waited_for(
    on_cuda: OnCuda, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    current = Stream()
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: current)
    (y,) = on_cuda().run(INPUTS, {"y": CPU})
    assert torch.equal(y, torch.ones(2))
    assert (stream.waited_for, current.waited_for) == ([current], [stream])


def test_another_stream_waits_for_a_run_that_fails(
    on_cuda: OnCuda, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch may give what ONNX Runtime has given back to kernels of that stream."""
    current = Stream()
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: current)
    with pytest.raises(Exception, match="Reshape"):
        on_cuda().run({**INPUTS, "size": torch.tensor([3])}, {"y": CPU})
    assert current.waited_for == [stream]


def test_what_is_resolved_for_another_stream_is_resolved_before_that_waits(
    on_cuda: OnCuda, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: Stream())
    monkeypatch.setattr(stream, "wait_stream", lambda _: order.append("waits"))
    resolve = torch.Tensor.resolve_conj
    monkeypatch.setattr(torch.Tensor, "resolve_conj", lambda self: order.append("resolved") or resolve(self))
    session = make_session(onnx.parser.parse_model(PARTS), SessionSettings(), [("CUDAExecutionProvider", {})])
    (y,) = session.run({"x": torch.tensor([1 + 2j]).conj()}, {"y": CPU})
    assert y.tolist() == [[-1, 2]]
    assert order[-1] == "waits"
    assert order[0] == "resolved"


PARTS = """<ir_version: 10, opset_import: ["" : 18]>
agraph (float[1, 2] x) => (float[1, 2] y) { y = Neg(x) }"""


@pytest.mark.usefixtures("stream")
def test_a_callers_stream_is_left_alone_and_sizes_are_copied_all_the_same() -> None:
    providers = [("CUDAExecutionProvider", {"user_compute_stream": "7"})]
    session = make_session(onnx.parser.parse_model(RESHAPE), SessionSettings(), providers)
    assert session.stream is None
    assert session.on_cpu == {"x", "size"}


LARGE = """<ir_version: 10, opset_import: ["" : 18]>
agraph (float[2] x) => (float[2] y) <float[2] c = {1, 2}> { y = Add(x, c) }"""


@pytest.mark.usefixtures("stream")
@pytest.mark.parametrize(("says", "device"), [("Cpu", "cpu"), ("Cuda", "meta")])
def test_large_constants_lie_where_they_are_read(monkeypatch: pytest.MonkeyPatch, says: str, device: str) -> None:
    monkeypatch.setattr(constants, "LIMIT", -1)
    monkeypatch.setattr(constants, "LARGE", 0)
    monkeypatch.setattr(Stream, "device", torch.device("meta"))
    inputs = [SimpleNamespace(name=says)] * 2
    monkeypatch.setattr(OnCpu, "get_input_memory_infos", lambda _: inputs)
    session = make_session(onnx.parser.parse_model(LARGE), SessionSettings(), [("CUDAExecutionProvider", {})])
    assert session.constants["c"].device.type == device


def test_what_onnx_runtime_is_told(on_cuda: OnCuda) -> None:
    """Handle 1 is that of torch's default stream, which is 0 in torch."""
    on_cuda()
    (name, told), *_ = OnCpu.told
    assert name == "CUDAExecutionProvider"
    assert told == {"use_tf32": "0", "user_compute_stream": "1", **ARENA}


ARENA = {"arena_extend_strategy": "kSameAsRequested"}
SHARED = {"session.use_env_allocators": "1"}
DOUBLING = {"arena_extend_strategy": "kNextPowerOfTwo"}


@pytest.mark.parametrize(
    ("given", "session_options", "told"),
    [
        ({}, SHARED, {}),
        ({}, {"session.use_env_allocators": "0"}, ARENA),
        ({}, ort.SessionOptions(), ARENA),
        ({"gpu_mem_limit": "9"}, SHARED, {**ARENA, "gpu_mem_limit": "9"}),
        (DOUBLING, SHARED, DOUBLING),
        ({"user_compute_stream": "7"}, SHARED, {**ARENA, "user_compute_stream": "7"}),
    ],
)
@pytest.mark.usefixtures("stream")
def test_sessions_that_share_memory_take_torchs_where_nothing_is_said_of_it(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], session_options: Any, told: dict[str, str]
) -> None:
    """Else ONNX Runtime has an arena of its own."""
    lent: list[int] = []
    monkeypatch.setattr(torch_memory, "lend", lambda device: lent.append(device) or True)
    settings = SessionSettings(session_options=session_options)
    make_session(onnx.parser.parse_model(RESHAPE), settings, [("CUDAExecutionProvider", given)])
    (_, found), *_ = OnCpu.told
    assert found == {"use_tf32": "0", "user_compute_stream": "1", **told}
    assert lent == ([0] if told == {} else [])


@pytest.mark.usefixtures("stream")
def test_where_another_allocator_is_registered_an_arena_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_memory, "lend", lambda _: False)
    settings = SessionSettings(session_options=SHARED)
    make_session(onnx.parser.parse_model(RESHAPE), settings, [("CUDAExecutionProvider", {})])
    assert OnCpu.told[0][1] == {"use_tf32": "0", "user_compute_stream": "1", **ARENA}


def test_a_stream_beside_torchs_default_one(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    session_module._stream_beside.cache_clear()
    session = make_session(
        onnx.parser.parse_model(RESHAPE), SessionSettings(on_own_stream=True), [("CUDAExecutionProvider", {})]
    )
    session_module._stream_beside.cache_clear()
    assert OnCpu.told[0][1]["user_compute_stream"] == "99"
    assert session.stream is not stream
    (y,) = session.run(INPUTS, {"y": CPU})
    assert torch.equal(y, torch.ones(2))
    assert stream.waited_for == [session.stream]


@pytest.mark.parametrize(
    "message",
    [
        *("Failed to allocate memory for 4", "CUDA failure 2: out of memory", "CUDA out of memory. Tried"),
        "onnxruntime::CUDAExternalAllocator::Alloc(size_t) p != nullptr was false",
    ],
)
def test_without_memory_a_run_begins_again_with_what_torch_keeps(
    on_cuda: OnCuda, monkeypatch: pytest.MonkeyPatch, message: str
) -> None:
    cleared: list[bool] = []
    ready = Binding.run

    def run(self: Binding, tensors: Sequence[torch.Tensor], options: ort.RunOptions) -> list[torch.Tensor]:
        if not cleared:
            raise RuntimeError(message)
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


def test_torchs_own_lack_of_memory_stays_torchs_error(on_cuda: OnCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(self: Binding, tensors: Sequence[torch.Tensor], options: ort.RunOptions) -> list[torch.Tensor]:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setattr(Binding, "run", run)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        on_cuda().run(INPUTS, {"y": CPU})
