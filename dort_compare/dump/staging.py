"""A dump that replaces another one appears whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dort_compare.dump.reader import manifest_in
from dort_compare.dump.writer import ENDINGS, MANIFEST
from dort_compare.errors import DumpError
from dort_compare.files import shared


@contextmanager
def staged(folder: Path, *, replaces_dumps: bool = True) -> Iterator[Path]:
    """A new folder beside ``folder``, which takes its place when the block ends without an error; a link stays one.

    What is replaced is an empty folder or another dump, unless ``replaces_dumps`` is off. Raises DumpError, before
    anything is done, where ``folder`` holds something else or cannot be written.
    """
    place = Path(os.path.realpath(folder))
    with _refused(folder):
        if place.exists() and not (_is_empty(place) or (replaces_dumps and _is_dump(place))):
            whole = "is not a dump and not empty" if replaces_dumps else "is not empty"
            kind = whole if place.is_dir() else "is no folder"
            raise DumpError(f"{folder} {kind}, so it is not replaced; choose another folder")
        place.parent.mkdir(parents=True, exist_ok=True)
        stage = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
    try:
        yield stage
        with _refused(folder):
            _swap(stage, place)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


@contextmanager
def _refused(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise DumpError(f"cannot write the folder {folder}: {problem.strerror}; choose another one") from None


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and not any(folder.iterdir())


def _is_dump(folder: Path) -> bool:
    """Whether the folder holds a dump, of any version, and nothing beside it."""
    if not folder.is_dir():
        return False
    try:
        dumped = {f"{name}.{ending}" for name in manifest_in(folder)["graphs"] for ending in ENDINGS}
    except DumpError:
        return False
    return {path.name for path in folder.iterdir()} <= {MANIFEST, *dumped}


def _swap(stage: Path, folder: Path) -> None:
    shared(stage)
    if not folder.exists():
        stage.rename(folder)
        return
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as old:
        before = folder.rename(Path(old) / "dump")
        try:
            stage.rename(folder)
        except OSError:
            before.rename(folder)
            raise
