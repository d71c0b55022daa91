"""Processors, providers and folders, each tried."""

from __future__ import annotations

import io
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from dort_compare.doctor.finding import Finding, State
from dort_compare.doctor.packages import installed_anew
from dort_compare.errors import one_line

_CPU, _CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
_QUIET, _WARNINGS = 4, 2
_IN_SOURCE = re.compile(r"/\S+\.(?:cc|h):\d+ .*?\)\s+")
"""The place in its own source that ONNX Runtime puts before a message: file, line and signature."""


def providers() -> Iterator[Finding]:
    """Every execution provider that ONNX Runtime lists, tried with a model of one node: a list is no promise."""
    import onnxruntime as ort

    model = _one_node()
    ort.set_default_logger_severity(_QUIET)
    try:
        for name in ort.get_available_providers():
            refusal = _refusal(model, name)
            if refusal is None:
                yield Finding(name, "ok", "makes a session and runs it")
            else:
                state: State = "broken" if name == _CPU else "absent"
                yield Finding(name, state, f"listed, but makes no session: {refusal}", _mend(name))
    finally:
        ort.set_default_logger_severity(_WARNINGS)


def cuda() -> Iterator[Finding]:
    """The GPU as torch sees it."""
    import torch

    if torch.cuda.is_available():
        count = torch.cuda.device_count()
        names = ", ".join(torch.cuda.get_device_name(index) for index in range(count))
        yield Finding("cuda", "ok", f"{names}; torch is built for CUDA {torch.version.cuda}")
    elif shutil.which("nvidia-smi") is None:
        yield Finding("cuda", "absent", "no GPU: nvidia-smi is not there", "only --provider cuda needs one")
    elif torch.version.cuda is None:
        yield Finding("cuda", "absent", "torch is built without CUDA", "pip install --force-reinstall torch")
    else:
        mend = f"update the driver to one for CUDA {torch.version.cuda}; nvidia-smi shows what it has"
        yield Finding("cuda", "absent", "torch.cuda.is_available() is False beside a GPU", mend)


def compiler() -> Iterator[Finding]:
    """The C++ compiler that --compile-backend inductor needs."""
    found = next(filter(None, map(shutil.which, (os.environ.get("CXX", "c++"), "g++", "clang++", "cl"))), None)
    mend = "install g++ or clang++; only --compile-backend inductor needs one"
    yield Finding("c++", "ok", found) if found else Finding("c++", "absent", "no C++ compiler", mend)


def folders() -> Iterator[Finding]:
    """Where dumps and temporary files are written."""
    yield _folder("temporary files", Path(tempfile.gettempdir()), "broken", "export TMPDIR=/a/folder/of/yours")
    yield _folder("this folder", Path.cwd(), "absent", "cd to a folder of yours, or give --dump and --json such a one")


def cache() -> Iterator[Finding]:
    """Where compiled graphs are kept, or, before the first, the nearest folder above."""
    from dort_compare.cache.folder import FOLDER_VARIABLE, default_folder

    folder = default_folder()
    there = next(each for each in (folder, *folder.parents) if each.exists())
    yield _folder("the cache", there, "absent", f"export {FOLDER_VARIABLE}=/a/folder/of/yours")


def _folder(what: str, folder: Path, otherwise: State, mend: str) -> Finding:
    """Whether a folder can be written."""
    free = f"{shutil.disk_usage(folder).free / 2**30:.1f} GiB free in {folder}"
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as problem:
        return Finding(what, otherwise, f"{folder}: {problem.strerror}", mend)
    return Finding(what, "ok", f"{free}, writable")


def threads() -> Iterator[Finding]:
    """How many threads torch, and with it ONNX Runtime, computes on."""
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = torch.get_num_threads()
    mend = f"export OMP_NUM_THREADS={cores}" if count > cores else None
    yield Finding("threads", "absent" if mend else "ok", f"{count} on {cores} cores", mend)


def comparison() -> Iterator[Finding]:
    """What all of it is for: a comparison, forward and backward, on the CPU."""
    import torch

    from dort_compare.api import compare
    from dort_compare.report.causes import verdict_line

    with torch.random.fork_rng(devices=[]):
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
        report = compare(model, (torch.randn(3, 4),), backward=True)
    if report.verdict == "agree" and not report.fallbacks:
        yield Finding("a comparison", "ok", verdict_line(report))
    else:
        yield Finding(
            "a comparison", "broken", verdict_line(report), "report it, with the file that --json FILE writes"
        )


def _one_node() -> bytes:
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "probe", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return bytes(model.SerializeToString())


def _refusal(model: bytes, provider: str) -> str | None:
    """Why a provider runs no model; ONNX Runtime itself falls back to the CPU and says so in its log alone."""
    import numpy as np
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = _QUIET
    said = io.StringIO()
    try:
        with redirect_stdout(said), redirect_stderr(said):
            if provider == _CUDA:
                ort.preload_dlls()
            session = ort.InferenceSession(model, options, providers=[provider], enable_fallback=0)
        if provider not in session.get_providers():
            return "its libraries or its device are not there"
        session.run(None, {"x": np.zeros(1, np.float32)})
    except Exception as problem:  # noqa: BLE001  (ONNX Runtime's exceptions have no common base but Exception)
        return _IN_SOURCE.sub("", one_line(problem))
    return None


def _mend(provider: str) -> str:
    if provider == _CPU:
        return installed_anew("onnxruntime")
    if provider == _CUDA:
        return "pip install 'onnxruntime-gpu[cuda,cudnn]', where there is a GPU"
    return "only if you want it: onnxruntime.ai/docs/execution-providers"
