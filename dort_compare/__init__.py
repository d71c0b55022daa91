"""Runs the graphs of torch.compile, forward and backward, on ONNX Runtime and says where they depart from eager."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dort_compare.api import compare
    from dort_compare.backends import DebugBackend, debug_backend, debug_compiler
    from dort_compare.backends.onnxrt import onnxrt
    from dort_compare.errors import DortError
    from dort_compare.report import Report

__all__ = ["DebugBackend", "DortError", "Report", "compare", "debug_backend", "debug_compiler", "onnxrt"]

_HOMES = {"compare": "api", "DortError": "errors", "Report": "report"}


def __getattr__(name: str) -> Any:
    """A public name, imported when it is first asked for: torch takes seconds, and ``--help`` needs none of it."""
    if name == "testing":
        return import_module(f"{__name__}.testing")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, getattr(import_module(f"{__name__}.{_HOMES.get(name, 'backends')}"), name))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
