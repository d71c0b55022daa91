"""The folder that entries stand in, and what in it is ours."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path

FOLDER_VARIABLE = "DORT_COMPARE_CACHE_DIR"
MOST = 2**30
"""Bytes that a folder may hold; beyond that the entries go that were not used for longest."""

MAGIC = b"dort-compare cache "
"""How an entry of any version begins; a file that does not is none of ours, whatever its name."""

_ENTRY = re.compile(r"[0-9a-f]{64}")
_PARTIAL = re.compile(r"\.[0-9a-f]{64}\.\w+")


def default_folder() -> Path:
    """The user's cache folder, as the platform has it, or the one that ``DORT_COMPARE_CACHE_DIR`` names."""
    named = os.environ.get(FOLDER_VARIABLE)
    return Path(named).expanduser().absolute() if named else user_cache_path("dort-compare", appauthor=False)


@dataclass(frozen=True)
class File:
    """A file of the cache: when it was last used, in seconds since 1970, and how many bytes it holds."""

    path: Path
    used: float
    size: int


def entries(folder: Path) -> list[File]:
    """The entries, the one used last first; none where nothing is there. Raises OSError for what is no folder."""
    found = (file for file in _files(folder, _ENTRY) if file.size > len(MAGIC))
    return sorted(found, key=lambda file: file.used, reverse=True)


def clear(folder: Path) -> list[File]:
    """Removes the entries, and what writers that were killed have left; returns the entries.

    Nothing else in the folder is touched. Raises OSError where that cannot be.
    """
    removed = entries(folder)
    for file in (*removed, *_files(folder, _PARTIAL)):
        file.path.unlink(missing_ok=True)
    return removed


def trim(folder: Path, most: int = MOST) -> None:
    """Removes what was not used for longest, until the entries hold ``most`` bytes. Raises OSError."""
    total = 0
    for file in entries(folder):
        total += file.size
        if total > most:
            file.path.unlink(missing_ok=True)


def _files(folder: Path, names: re.Pattern[str]) -> Iterator[File]:
    if not folder.exists():
        return
    for path in folder.iterdir():
        if not names.fullmatch(path.name) or path.is_symlink() or not path.is_file():
            continue
        with suppress(FileNotFoundError, PermissionError):  # just removed by another process, or another user's
            found = path.stat()
            if _begins_like_ours(path, found.st_size):
                yield File(path, found.st_mtime, found.st_size)


def _begins_like_ours(path: Path, size: int) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC[:size]
