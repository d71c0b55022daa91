"""Makes ONNX Runtime sessions, on torch's CUDA device where they run there."""

from __future__ import annotations

import functools
import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import onnx
import onnx_ir as ir
import onnxruntime as ort
import torch

from dort_compare import provenance
from dort_compare.captures import read_by
from dort_compare.errors import ExecutionError, OutOfRangeError, RuntimeUnavailableError
from dort_compare.runtime import torch_memory
from dort_compare.runtime.binding import Binding, dense_parts
from dort_compare.runtime.constants import apart, with_constants
from dort_compare.runtime.harmful_optimizers import harmful_for
from dort_compare.runtime.providers import CUDA, ERRORS_ONLY, Provider, SessionSettings, names_optimizers
from dort_compare.runtime.refused_options import refused_option
from dort_compare.runtime.refused_tensors import refuse_tangents, without_memory

_STREAM, _DEFAULT_STREAM = "user_compute_stream", "1"
_TF32 = "use_tf32"
_ARENA = "arena_extend_strategy"
_OWN_MEMORY = frozenset([_ARENA, "gpu_mem_limit", "gpu_external_alloc"])
"""Options of CUDA's provider about its memory."""
_OUT_OF_RANGE = ("out of data bounds", "invalid indice found", "Out of range value in index tensor")
_WITHOUT_SIGN = re.compile(r"idx=(\d{19}|21474836\d\d)\b")
"""Lowerings take the sign from a negative index that torch refuses, as ONNX counts those from the end."""
_OUT_OF_MEMORY = (
    *("Failed to allocate memory", "out of memory"),
    *("CUDA_ERROR_OUT_OF_MEMORY", "CUBLAS_STATUS_ALLOC_FAILED", "CUDAExternalAllocator"),
)
_WORD = re.compile(r"\w[\w.]*\w")


class OutOfMemoryError(ExecutionError, torch.OutOfMemoryError):
    """There is no memory for what a model computes; torch's error of that name, as torch's kernels raise."""


@dataclass(frozen=True)
class Session:
    """An ``InferenceSession`` with, on CUDA, the stream of torch that its kernels run on: the default one, or one
    beside it.

    ``constants`` are inputs of the session that are the same in every run. ``read`` names the inputs that nodes read or
    the model returns, ``on_cpu`` those that kernels of CUDA read on the CPU.
    """

    onnx_session: ort.InferenceSession
    stream: torch.cuda.Stream | None
    origins: Mapping[str, provenance.Provenance]
    constants: Mapping[str, torch.Tensor]
    read: frozenset[str]
    on_cpu: frozenset[str] = frozenset()

    def run(self, inputs: Mapping[str, torch.Tensor], outputs: Mapping[str, torch.device]) -> list[torch.Tensor]:
        """What ``outputs`` hold, each on the device named beside it; see ``prepared``."""
        return self.prepared(list(inputs), outputs)(list(inputs.values()))

    def prepared(
        self, inputs: Sequence[str], outputs: Mapping[str, torch.device]
    ) -> Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]:
        """A function of torch tensors, in the order of ``inputs``, that returns what ``outputs`` hold.

        On CUDA it runs in order with torch's current stream, and waits for the device only where a result is to lie on
        the CPU, or a kernel reads on the CPU, such as a size, what is handed over on the device. What no node reads is
        not handed over: ONNX Runtime would copy it to the CPU, and wait for it.
        """
        all_names = [*inputs, *self.constants]
        handed = [i for i, name in enumerate(all_names) if name in self.read]
        names = [all_names[i] for i in handed]
        binding = Binding(self.onnx_session, names, outputs, on_cpu=self.stream is None)
        constants = list(self.constants.values())
        on_cpu = [i for i, name in enumerate(names) if name in self.on_cpu]
        options = _run_options(self.onnx_session)
        if self.stream is not None and all(device.type == "cuda" for device in outputs.values()):
            options.add_run_config_entry("disable_synchronize_execution_providers", "1")

        def run(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
            refuse_tangents(tensors)
            try:
                every = [*tensors, *constants]
                given = [every[i] for i in handed]
                for i in on_cpu:  # ONNX Runtime would not wait for the copy that it makes
                    given[i] = given[i].cpu()
                if self.stream is None:
                    return binding.run(given, options)
                return _in_order(self.stream, binding, given, options)
            except Exception as problem:  # noqa: BLE001  (ONNX Runtime's exceptions have no other common base)
                raise without_memory(tensors) or _explained(problem, self.origins) from None

        return run


def _run_options(session: ort.InferenceSession) -> ort.RunOptions:
    """What fails in a run is raised: ONNX Runtime is not to print it besides, unless the session is to print more."""
    options = ort.RunOptions()
    if session.get_session_options().log_severity_level == ERRORS_ONLY:
        options.log_severity_level = ERRORS_ONLY + 1
    return options


def _in_order(
    stream: torch.cuda.Stream, binding: Binding, tensors: Sequence[torch.Tensor], options: ort.RunOptions
) -> list[torch.Tensor]:
    current = torch.cuda.current_stream(stream.device)
    if current == stream:
        return _with_room(binding, tensors, options)
    ready = [dense_parts(tensor) for tensor in tensors]
    stream.wait_stream(current)
    # torch hands on at once what its default stream gives back, and what the sessions' own stream does to these alone
    with torch.cuda.stream(stream if stream.cuda_stream else current):
        try:
            return _with_room(binding, ready, options)
        finally:
            current.wait_stream(stream)


def _with_room(binding: Binding, tensors: Sequence[torch.Tensor], options: ort.RunOptions) -> list[torch.Tensor]:
    """Runs; once more, where there is no memory, without what torch keeps of the device's for later."""
    try:
        return binding.run(tensors, options)
    except Exception as problem:
        if not _is_out_of_memory(str(problem)):
            raise
    torch.cuda.empty_cache()
    return binding.run(tensors, options)


def make_session(
    whole: ir.Model | onnx.ModelProto,
    settings: SessionSettings,
    providers: Sequence[Provider],
    disabled: Sequence[str] | None = None,
    frozen: Mapping[str, torch.Tensor] | None = None,
) -> Session:
    """A session for a model on all of ``providers``: ONNX Runtime by itself would go on without one that fails.

    ``disabled`` names the optimizers of ONNX Runtime that are off; None: those that would harm the model, unless the
    session options name some.
    ``frozen`` gives the values of inputs that are to be constants.

    Raises ExecutionError, naming the FX node, where ONNX Runtime refuses the model, UsageError where it refuses a
    session option, RuntimeUnavailableError where a provider does not work on this machine.
    """
    model, constants = apart(whole)
    origins = {node.name: origin for node in model.graph.node if (origin := _origin(node))}
    chosen, stream = _as_torch_computes(providers, settings)
    options = settings.make_options()
    model = with_constants(model, frozen or {}, options)
    if disabled is None:
        disabled = () if names_optimizers(options) else harmful_for(model)
    try:
        session = ort.InferenceSession(
            model.SerializeToString(), options, chosen, enable_fallback=0, disabled_optimizers=list(disabled)
        )
    except Exception as problem:  # noqa: BLE001
        raise refused_option(settings, chosen) or _explained(problem, origins) from None
    missing = [name for name, _ in providers if name not in session.get_providers()]
    if missing:
        raise RuntimeUnavailableError(f"{', '.join(missing)} does not work on this machine; choose another provider")
    read = frozenset(read_by(model.graph.node).union(value.name for value in model.graph.output))
    on_cpu = _read_on_cpu(session) & read if any(name == CUDA for name, _ in chosen) else frozenset()
    if stream is not None:
        # what still runs gives memory back to the session, from a thread that may not end one
        weakref.finalize(session, stream.synchronize)
        constants = {n: tensor if n in on_cpu else tensor.to(stream.device) for n, tensor in constants.items()}
    return Session(session, stream, origins, constants, read, on_cpu)


def _read_on_cpu(session: ort.InferenceSession) -> frozenset[str]:
    """The inputs that a kernel reads on the CPU, such as a size; none where ONNX Runtime is too old to say.

    Of what no node reads it says the same.
    """
    if not hasattr(session, "get_input_memory_infos"):
        return frozenset()
    infos = zip(session.get_inputs(), session.get_input_memory_infos(), strict=True)
    return frozenset(value.name for value, info in infos if info.name == "Cpu")


def _as_torch_computes(
    providers: Sequence[Provider], settings: SessionSettings
) -> tuple[list[Provider], torch.cuda.Stream | None]:
    """The providers, with what suits torch on CUDA wherever the caller has chosen nothing, and the stream they run on.

    It is torch's default stream, by the handle that CUDA has for it, or else one beside it: ONNX Runtime takes 0,
    torch's, for "none given". Float32 products are rounded to TF32 only where torch's are. Sessions that share memory
    take torch's. An arena of ONNX Runtime's own grows by what is asked for, where it would double, as torch needs the
    memory beside it.
    """
    chosen, stream = [], None
    for name, given in providers:
        options = dict(given)
        if name == CUDA:
            is_rounded = torch.backends.cuda.matmul.fp32_precision == "tf32"
            options = {_TF32: str(int(is_rounded)), **options}
            device, is_lent = int(options.get("device_id", 0)), False
            if _STREAM not in options:
                is_own = settings.on_own_stream
                stream = _stream_beside(device) if is_own else torch.cuda.default_stream(device)
                options[_STREAM] = str(stream.cuda_stream) if is_own else _DEFAULT_STREAM
                is_lent = settings.share_memory and _OWN_MEMORY.isdisjoint(options) and torch_memory.lend(device)
            if not is_lent:
                options.setdefault(_ARENA, "kSameAsRequested")
        chosen.append((name, options))
    return chosen, stream


@functools.cache
def _stream_beside(device: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


def _origin(node: onnx.NodeProto) -> provenance.Provenance | None:
    return provenance.Provenance.read(provenance.metadata_of(node))


def _explained(problem: Exception, origins: Mapping[str, provenance.Provenance]) -> ExecutionError:
    text = " ".join(str(problem).split())
    origin = next((origins[word] for word in _WORD.findall(text) if word in origins), None)
    where = (
        f" at FX node {origin.fx_node} ({origin.aten_target}, {origin.source or 'source unknown'})" if origin else ""
    )
    kind = ExecutionError
    if _WITHOUT_SIGN.search(text):
        return OutOfRangeError(f"ONNX Runtime failed{where}: an index or a count is negative, or far out of bounds")
    if any(words in text for words in _OUT_OF_RANGE):
        kind = OutOfRangeError
    elif _is_out_of_memory(text):
        kind = OutOfMemoryError
    return kind(f"ONNX Runtime failed{where}: {text}")


def _is_out_of_memory(text: str) -> bool:
    return any(words in text for words in _OUT_OF_MEMORY)
