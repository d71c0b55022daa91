"""A dump that replaces another one appears whole or not at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dort_compare.dump.reader import manifest_in
from dort_compare.dump.writer import ENDINGS, MANIFEST
from dort_compare.errors import DumpError


@contextmanager
def staged(folder: Path, *, replaces_dumps: bool = True) -> Iterator[Path]:
    """A new folder beside ``folder``, which takes its place when the block ends without an error.

    What is replaced is an empty folder or another dump, unless ``replaces_dumps`` is off. Raises DumpError, before
    anything is done, where ``folder`` holds something else or cannot be written.
    """
    try:
        if folder.exists() and not (_is_empty(folder) or (replaces_dumps and _is_dump(folder))):
            kind = "is not a dump and not empty" if replaces_dumps else "is not empty"
            raise DumpError(f"{folder} {kind}, so it is not replaced; choose another folder")
        folder.parent.mkdir(parents=True, exist_ok=True)
        stage = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as problem:
        raise DumpError(f"cannot write the folder {folder}: {problem.strerror}; choose another one") from None
    try:
        yield stage
        _swap(stage, folder)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


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
    stage.chmod(0o755)
    if not folder.exists():
        stage.rename(folder)
        return
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as old:
        before = folder.rename(Path(old) / "dump")
        try:
            stage.rename(folder)
        except OSError as problem:
            before.rename(folder)
            raise DumpError(f"cannot write the folder {folder}: {problem}; choose another one") from None
