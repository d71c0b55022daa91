"""Python, and the packages that pyproject.toml asks for, as they are installed."""

from __future__ import annotations

import importlib
import platform
import sys
from collections.abc import Iterator
from importlib import metadata

from packaging.requirements import Requirement

from dort_compare.doctor.finding import Finding, State
from dort_compare.errors import one_line

_NAME = "dort-compare"
_RUNTIMES = ("onnxruntime", "onnxruntime-gpu")
_IMPORTED = ("torch", "onnx", "onnxruntime", "onnxscript")


def python() -> Iterator[Finding]:
    """The interpreter."""
    oldest = metadata.metadata(_NAME)["Requires-Python"]
    fits = oldest is None or Requirement(f"python{oldest}").specifier.contains(platform.python_version())
    mend = None if fits else f"install Python {oldest}, and dort-compare in it"
    yield Finding("python", "ok" if fits else "broken", f"{platform.python_version()} at {sys.executable}", mend)


def required() -> Iterator[Finding]:
    """The packages without which nothing works: their versions, and whether those that are compiled can be imported."""
    for requirement in _requirements(""):
        if requirement.name not in _RUNTIMES:
            yield _installed(requirement, str(requirement).partition(";")[0].strip(), is_needed=True)
    yield from _runtimes()
    for name in _IMPORTED:
        try:
            importlib.import_module(name)
        except Exception as problem:  # noqa: BLE001  (a library that does not load raises anything)
            yield Finding(f"import {name}", "broken", one_line(problem), installed_anew(name))


def installed_anew(name: str) -> str:
    """The command that installs a package anew; that of ONNX Runtime which is there, as two overwrite each other."""
    if name in _RUNTIMES:
        name = next(iter(_installed_runtimes()), name)
    return f"pip install --force-reinstall {name}"


def _installed_runtimes() -> list[str]:
    return [name for name in _RUNTIMES if any(metadata.distributions(name=name))]


def optional() -> Iterator[Finding]:
    """The packages of the extras, but for those that developers need."""
    extras = [extra for extra in metadata.metadata(_NAME).get_all("Provides-Extra") or () if extra != "dev"]
    for extra in extras:
        for requirement in _requirements(extra):
            yield _installed(requirement, f"{_NAME}[{extra}]", is_needed=False)


def _requirements(extra: str) -> list[Requirement]:
    """What holds on this machine: of the package itself for "", else what ``extra`` adds."""
    found = map(Requirement, metadata.requires(_NAME) or ())
    return [each for each in found if _holds(each, extra) and (not extra or not _holds(each, ""))]


def _holds(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def _installed(requirement: Requirement, wanted: str, is_needed: bool) -> Finding:
    lacking: State = "broken" if is_needed else "absent"
    mend = f"pip install '{wanted}'"
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return Finding(requirement.name, lacking, "not installed", mend)
    if not requirement.specifier.contains(version, prereleases=True):
        return Finding(requirement.name, lacking, f"{version}, where {requirement.specifier} is needed", mend)
    return Finding(requirement.name, "ok", version)


def _runtimes() -> Iterator[Finding]:
    """ONNX Runtime comes in several packages with one folder: one has to be there, and two overwrite each other."""
    wanted = next(each for each in _requirements("") if each.name in _RUNTIMES)
    have = _installed_runtimes()
    pip = f"'{wanted.name}{wanted.specifier}'"
    if len(have) == 1:
        yield _installed(Requirement(f"{have[0]}{wanted.specifier}"), f"{have[0]}{wanted.specifier}", is_needed=True)
    elif have:
        mend = f"pip uninstall -y {' '.join(have)} && pip install {pip}"
        yield Finding("onnxruntime", "broken", f"{' and '.join(have)} overwrite each other's files", mend)
    else:
        yield Finding("onnxruntime", "broken", "not installed", f"pip install {pip}")
