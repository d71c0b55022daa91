"""What a comparison ran on."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

import onnx
import onnxruntime
import torch


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
