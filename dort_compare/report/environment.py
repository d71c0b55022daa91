"""What a comparison was asked for, and what it ran on."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import onnx
import onnxruntime
import torch

from dort_compare.backends.options import Options
from dort_compare.dtypes import dtype_name
from dort_compare.trace.call import Call


def settings(call: Call, options: Options, dynamic: bool | None) -> dict[str, Any]:
    """How the model was called and compiled, as JSON values."""
    providers = options.providers and [str(each[0] if isinstance(each, tuple) else each) for each in options.providers]
    return {
        "backward": call.backward,
        "autocast": dtype_name(call.autocast) if call.autocast else None,
        "dynamic": dynamic,
        "exporter": options.exporter,
        "opset": options.opset,
        "providers": providers,
        "rewrites": options.rewrites,
        "freeze": options.freeze,
        "fallback": options.fallback,
    }


def environment() -> dict[str, str]:
    """Date, versions and machine, each as text."""
    found = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "dort-compare": _version("dort-compare"),
        "Python": platform.python_version(),
        "torch": torch.__version__,
        "ONNX Runtime": onnxruntime.__version__,
        "onnx": onnx.__version__,
        "transformers": _version("transformers"),
        "system": platform.platform(),
        "threads of torch": str(torch.get_num_threads()),
        "GPU": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
    }
    return {name: value for name, value in found.items() if value}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
