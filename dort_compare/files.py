"""Files that a caller names."""

from __future__ import annotations

import os
from pathlib import Path

from dort_compare.errors import UsageError


def check_writable(path: str | Path) -> None:
    """Raises UsageError where a file cannot be written; creates nothing."""
    path = Path(path)
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a folder; name a file")
    folder = path.absolute().parent
    if not folder.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        raise UsageError(f"cannot write {path}: no permission or no such folder; choose another file")


def check_folder(folder: Path) -> None:
    """Raises UsageError where files cannot be written into a folder, which need not be there; creates nothing."""
    there = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise UsageError(f"cannot write into {folder}: no permission or no folder; choose another one")


def write(path: str | Path, text: str) -> None:
    """Writes a file. Raises UsageError where it cannot be written."""
    check_writable(path)
    Path(path).write_text(text, encoding="utf-8")
