"""What a caller may choose, in one frozen place."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import onnxruntime as ort

from dort_compare.dump.files import is_plain_name
from dort_compare.errors import UsageError, nearest
from dort_compare.log import MOST_VERBOSE
from dort_compare.lowering.torch_export import OPSETS as TORCH_OPSETS
from dort_compare.runtime.opsets import checked_opset, newest_opset
from dort_compare.runtime.providers import ProviderSpec, SessionSettings, serving

Exporter = Literal["native", "torch"]
EXPORTERS = ("native", "torch")
_SWITCHES = ("rewrites", "freeze", "cudagraphs", "fallback")


@dataclass(frozen=True)
class Options:
    """Options of the backends; the names are those of ``torch.compile(..., options={...})``.

    Attributes:
        exporter: "native", our own lowerings, or "torch", PyTorch's ``torch.onnx.export(dynamo=True)``.
        target_opset: ONNX opset of the models; None: the newest that the exporter writes and ONNX Runtime takes.
        providers: execution providers in order of preference ("cpu", "cuda", or ONNX Runtime's names, or (name,
            options) pairs); None: what the devices of the graph's tensors call for.
        session_options: an ``onnxruntime.SessionOptions`` or a mapping of its attributes and config entries.
        rewrites: whether graphs are rewritten for speed: those of a training step
            (``backends.forward_backward.rewritten_and_cut``), and models before ONNX Runtime's own optimizers
            (``dort_compare.rewrites``); None: in the backend that only runs.
        freeze: parameters and buffers become constants of the session in graphs without gradients, folded and
            prepacked; a changed one is noticed, unless it is written through ``tensor.data``.
        cudagraphs: in the backend that only runs, the kernels of a graph on a GPU are recorded as a CUDA graph and
            launched by one call.
        cache: in the backend that only runs, and dumps nothing, whether compiled graphs are kept on disk for other
            processes, or the folder for them; None, True: in the user's cache folder, or where the environment
            variable DORT_COMPARE_CACHE_DIR says.
        dump: folder for the graphs, or None.
        dump_prefix: first part of the names of the files in it.
        max_runs: how many runs of each graph the debug backend keeps the inputs of.
        fallback: what cannot run in ONNX Runtime runs in eager torch; False makes it an error.
        verbose: how much of the log of a compilation goes to stderr: 0 nothing, 1 what is compiled and how long each
            stage takes, 2 its modules too, 3 their operators too. The logger ``dort_compare.log`` has it at INFO, 15
            and DEBUG.
    """

    exporter: Exporter = "native"
    target_opset: int | None = None
    providers: tuple[ProviderSpec, ...] | None = None
    session_options: ort.SessionOptions | Mapping[str, Any] = field(default_factory=dict)
    rewrites: bool | None = None
    freeze: bool = False
    cudagraphs: bool = False
    cache: bool | Path | None = None
    dump: Path | None = None
    dump_prefix: str = "model"
    max_runs: int = 1
    fallback: bool = True
    verbose: int = 0

    @classmethod
    def of(cls, **given: Any) -> Options:
        """Options from keyword arguments. Raises UsageError for an unknown name or a value that cannot be."""
        known = [f.name for f in fields(cls)]
        for name in given:
            if name not in known:
                raise UsageError(f"unknown option {name!r}{nearest(name, known)}; known are {', '.join(known)}")
        if given.get("providers") is not None:
            providers = given["providers"]
            if not isinstance(providers, (str, Sequence)):
                raise UsageError(f"providers is {providers!r}; give a list, such as ['cuda', 'cpu']")
            given["providers"] = (providers,) if isinstance(providers, str) else tuple(providers)
        if given.get("dump") is not None:
            if not isinstance(given["dump"], (str, os.PathLike)) or not os.fspath(given["dump"]):
                raise UsageError(f"dump is {given['dump']!r}; give a folder")
            given["dump"] = Path(given["dump"])
        if given.get("cache") and isinstance(given["cache"], str):
            given["cache"] = Path(given["cache"])
        return cls(**given)

    def __post_init__(self) -> None:
        if self.exporter not in EXPORTERS:
            raise UsageError(f"unknown exporter {self.exporter!r}; choose from {', '.join(EXPORTERS)}")
        for name in _SWITCHES:
            value = getattr(self, name)
            if not isinstance(value, bool) and not (value is None and name == "rewrites"):
                raise UsageError(f"{name} is {value!r}; give True or False")
        if not isinstance(self.session_options, (ort.SessionOptions, Mapping)):
            raise UsageError(f"session_options is {self.session_options!r}; give a dict")
        if type(self.max_runs) is not int or self.max_runs < 0:
            raise UsageError(f"max_runs is {self.max_runs!r}; it counts runs: give 0 or more")
        if not isinstance(self.cache, (bool, Path, type(None))):
            raise UsageError(f"cache is {self.cache!r}; give True, False or a folder")
        if type(self.verbose) is not int or not 0 <= self.verbose <= MOST_VERBOSE:
            raise UsageError(f"verbose is {self.verbose!r}; give 0 to {MOST_VERBOSE}")
        if not isinstance(self.dump_prefix, str) or not is_plain_name(self.dump_prefix):
            raise UsageError(f"dump_prefix {self.dump_prefix!r} is not a plain file name; give the folder as dump")
        for name in ("freeze", "cudagraphs"):
            if getattr(self, name) and isinstance(self.session_options, ort.SessionOptions):
                raise UsageError(f"{name} makes session options of its own: give session_options as a mapping")
        if self.freeze and self.cudagraphs:
            raise UsageError("freeze looks for changed parameters in every call, and cudagraphs makes none: choose one")
        checked_opset(self.target_opset, self._newest_opset)
        providers = self.session.resolved_providers()
        if self.cudagraphs and any("user_compute_stream" in options for _, options in providers):
            raise UsageError("cudagraphs records a stream of its own: leave user_compute_stream out")
        self.session.make_options()

    @property
    def opset(self) -> int:
        return checked_opset(self.target_opset, self._newest_opset)

    @property
    def _newest_opset(self) -> int:
        return newest_opset() if self.exporter == "native" else min(newest_opset(), TORCH_OPSETS[-1])

    @property
    def session(self) -> SessionSettings:
        given = self.session_options
        is_object = isinstance(given, ort.SessionOptions)
        return SessionSettings(self.providers or (), given if is_object else serving(given), self.cudagraphs)


def keywords(options: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The ``options`` of ``torch.compile`` as keyword arguments. Raises UsageError for what is no mapping of names."""
    given = {} if options is None else options
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise UsageError(f"options is {options!r}; give a dict, such as {{'freeze': True}}")
    return given


def refuse_mode(mode: str | None) -> None:
    """Raises UsageError for a ``mode`` of ``torch.compile``, which hands it to every backend: it is inductor's."""
    if mode is not None:
        hint = ", as cudagraphs for reduce-overhead" if mode == "reduce-overhead" else ""
        raise UsageError(
            f"mode is {mode!r}, and modes are inductor's: leave it out, this backend has options only{hint}"
        )
