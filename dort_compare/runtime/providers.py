"""Which execution providers and settings a session gets."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnxruntime as ort
import torch

from dort_compare.errors import RuntimeUnavailableError, UsageError, nearest

ProviderSpec = str | tuple[str, Mapping[str, Any]]
Provider = tuple[str, dict[str, Any]]

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
_SHORT = {"cpu": CPU, "cuda": CUDA}
ERRORS_ONLY = 3
"""The severity of what sessions print, unless another is asked for; 4 is what ends the process."""
_CUDA_GRAPH = "enable_cuda_graph"
_ENV_ALLOCATORS = "session.use_env_allocators"
_OFF = "optimization.disable_specified_optimizers"
_WAITS_BRIEFLY = {"session.intra_op.spin_duration_us": "200"}
_STOPS = {"session.force_spinning_stop": "1"}
_TOLD_HOW_LONG = (1, 31)
"""The first version of ONNX Runtime known to take a duration; others wait busily for 3 to 50 ms."""


@dataclass(frozen=True)
class SessionSettings:
    """How sessions are made.

    ``providers``: "cpu", "cuda", names of ONNX Runtime, or (name, options) pairs, in order of preference; empty: the
    ones that the devices of the graph's tensors call for.
    ``session_options``: an ``onnxruntime.SessionOptions``, taken as it is, or a mapping from names of its attributes
    ("intra_op_num_threads") or of session config entries ("session.disable_prepacking") to values.
    ``on_own_stream``: on CUDA, sessions run on a stream of their own, since CUDA captures no default stream.
    """

    providers: tuple[ProviderSpec, ...] = ()
    session_options: ort.SessionOptions | Mapping[str, Any] = field(default_factory=dict)
    on_own_stream: bool = False

    def resolved_providers(self, devices: Sequence[torch.device] = ()) -> list[Provider]:
        """The (name, options) pairs for ``InferenceSession``.

        Raises UsageError for a name that ONNX Runtime does not have, RuntimeUnavailableError for CUDA without a GPU.
        """
        if self.providers:
            return [_resolve(spec) for spec in self.providers]
        cuda = next((device for device in devices if device.type == "cuda"), None)
        if cuda is None:
            return [(CPU, {})]
        # ONNX Runtime (1.31) warns on stderr whenever it is told a device
        where = {"device_id": str(cuda.index)} if cuda.index else {}
        return [_resolve(("cuda", where)), (CPU, {})]

    @property
    def share_memory(self) -> bool:
        """Whether sessions take memory from allocators that are registered for all."""
        given = self.session_options
        return isinstance(given, Mapping) and _entry(given.get(_ENV_ALLOCATORS)) == "1"

    def make_options(self) -> ort.SessionOptions:
        """A ``SessionOptions`` object. Raises UsageError for a name or a value that ONNX Runtime does not take."""
        if isinstance(self.session_options, ort.SessionOptions):
            return self.session_options
        options = ort.SessionOptions()
        options.log_severity_level = ERRORS_ONLY
        chosen = {**_beside_torch(), **self.session_options}
        if self.share_memory:
            _share_an_arena()
        for name, value in chosen.items():
            _set_option(options, name, value)
        return options


def _set_option(options: ort.SessionOptions, name: str, value: Any) -> None:
    if not isinstance(name, str):
        raise UsageError(f"session option {name!r} is no name; give names of ONNX Runtime's options")
    if "." in name:
        try:
            options.add_session_config_entry(name, _entry(value))
        except RuntimeError:  # it is too long
            raise UsageError(f"session option {name!r} cannot be {value!r}") from None
        return
    known = [attribute for attribute in dir(ort.SessionOptions) if not attribute.startswith("_")]
    known = [attribute for attribute in known if not callable(getattr(options, attribute))]
    if name not in known:
        raise UsageError(f"unknown session option {name!r}{nearest(name, known)}")
    try:
        setattr(options, name, value)
    except TypeError:
        raise UsageError(f"session option {name!r} cannot be {value!r}") from None


def _entry(value: Any) -> str:
    """A value of a session config entry: ONNX Runtime reads "1", and takes "True" for no."""
    return str(int(value) if isinstance(value, bool) else value)


def _beside_torch() -> dict[str, Any]:
    """What sessions are given unless the caller says otherwise: as many threads as torch has, which wait busily for as
    long as the next call of a small model takes to come, and no longer: then torch's threads and other sessions' need
    the cores. Where ONNX Runtime cannot be told how long, they stop at the end of a run."""
    is_told = tuple(map(int, ort.__version__.split(".")[:2])) >= _TOLD_HOW_LONG
    return {"intra_op_num_threads": torch.get_num_threads(), **(_WAITS_BRIEFLY if is_told else _STOPS)}


def serving(given: Mapping[str, Any]) -> dict[str, Any]:
    """Session options for one of several sessions that run in turns for long, under those that the caller has given.

    They take memory from one arena, so that what the forward session gives back the backward one can have, and only as
    they need it: a plan of all memory of a run keeps it apart for that run. An arena keeps what it once had.
    """
    wants_arena = given.get("enable_cpu_mem_arena", True)
    return {"enable_mem_pattern": False, _ENV_ALLOCATORS: "1" if wants_arena else "0", **given}


@functools.cache
def _share_an_arena() -> None:
    """Registers the arena of the CPU with ONNX Runtime; once in a process.

    It grows by doubling. Of a new region, what nothing is put in takes no memory from the machine; and what is freed in
    a large region can be joined to hold larger values, as it cannot between regions.
    """
    memory = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    settings = {
        "max_mem": 0,
        "arena_extend_strategy": 0,
        "initial_chunk_size_bytes": -1,
        "max_dead_bytes_per_chunk": -1,
    }
    ort.create_and_register_allocator(memory, ort.OrtArenaCfg(settings))


def once() -> dict[str, Any]:
    """Session options for a session that runs once, between kernels of torch: threads that do not spin while torch's
    work, and no memory kept for a second run."""
    return {
        "session.intra_op.allow_spinning": "0",
        _ENV_ALLOCATORS: "0",
        "enable_cpu_mem_arena": False,
        "enable_mem_pattern": False,
    }


def by_itself() -> dict[str, Any]:
    """Session options for a session with the optimizers of ONNX Runtime that it has by itself, harmful ones too."""
    return {_OFF: ""}


def names_optimizers(options: ort.SessionOptions) -> bool:
    """Whether session options say themselves which optimizers are off."""
    try:
        options.get_session_config_entry(_OFF)
    except RuntimeError:
        return False
    return True


def _resolve(spec: ProviderSpec) -> Provider:
    match spec:
        case str(name):
            options: Mapping[str, Any] = {}
        case (str(name), Mapping() as options):
            pass
        case _:
            raise UsageError(f"provider {spec!r} is neither a name nor a pair of a name and a dict of options")
    name = _SHORT.get(name, name)
    if name == CUDA:
        if str(options.get(_CUDA_GRAPH, 0)).lower() in ("1", "true"):
            raise UsageError(
                f"{_CUDA_GRAPH} would have all calls read and write the first one's memory; leave it out, and give the "
                "backend the option cudagraphs=True"
            )
        _prepare_cuda()
    available = ort.get_available_providers()
    if name not in available:
        choices = ["cpu", "cuda", *available]
        close = ", did you mean 'cuda'?" if name == "gpu" else nearest(name, choices)
        raise UsageError(f"unknown execution provider {name!r}{close}; choose from {', '.join(choices)}")
    return name, dict(options)


def with_cpu(provider: str) -> list[str]:
    """A provider, and the CPU for what it has no kernel for."""
    return [provider] if provider == "cpu" else [provider, "cpu"]


def _prepare_cuda() -> None:
    if not torch.cuda.is_available():
        raise RuntimeUnavailableError("no CUDA device: torch.cuda.is_available() is False; use the cpu provider")
    if CUDA not in ort.get_available_providers():
        raise RuntimeUnavailableError("this ONNX Runtime has no CUDA provider; pip install onnxruntime-gpu")
    ort.preload_dlls()
