"""Files that a caller names, and files that are there whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from dort_compare.errors import UsageError


def check_writable(path: str | Path) -> None:
    """Raises UsageError where a file cannot be written; creates nothing."""
    path = Path(path)
    with _refused(f"cannot write {path}", "choose another file"):
        if path.is_dir():
            raise UsageError(f"cannot write {path}: it is a folder; name a file")
        folder = path.absolute().parent
        if not folder.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
            raise UsageError(f"cannot write {path}: no permission or no such folder; choose another file")


def check_folder(folder: Path) -> None:
    """Raises UsageError where files cannot be written into a folder, which need not be there; creates nothing."""
    with _refused(f"cannot write into {folder}", "choose another one"):
        there = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
        if not there.is_dir() or not os.access(there, os.W_OK):
            raise UsageError(f"cannot write into {folder}: no permission or no folder; choose another one")


def check_files(written: Iterable[Path], read: Iterable[Path] = ()) -> None:
    """Raises UsageError where one of the files to be ``written`` cannot be, or is another one, or ``read`` too."""
    written = list(written)
    if not written:
        return
    for path in written:
        check_writable(path)
    givers = {os.path.realpath(path) for path in read}
    known = set(givers)
    for path in written:
        if path.exists() and not path.is_file():
            continue  # a device takes what it is given
        real = os.path.realpath(path)
        if real in known:
            why = "is read" if real in givers else "is named twice"
            raise UsageError(f"{path} {why}, and what it holds would be lost; choose another file")
        known.add(real)


@contextmanager
def _refused(what: str, mend: str) -> Iterator[None]:
    """Tells what the system says of a path that it will not even look at, as one that is too long."""
    try:
        yield
    except OSError as problem:
        raise UsageError(f"{what}: {problem.strerror}; {mend}") from None


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """A new file, to be filled and moved to ``path``, which lies in the same folder; it is gone when the block ends."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    partial = Path(name)
    try:
        yield partial
    finally:
        partial.unlink(missing_ok=True)


def write(path: str | Path, text: str) -> None:
    """Writes a file, which keeps what it held until all of it is written, where another can take its place; a link, a
    device, or a file in a folder that takes no other is written in place.

    Raises UsageError where it cannot be written.
    """
    check_writable(path)
    path = Path(path)
    try:
        if not _replaced(path, text):
            path.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise UsageError(f"cannot write {path}: {problem.strerror or problem}; choose another file") from None


def _replaced(path: Path, text: str) -> bool:
    """Writes a file beside ``path`` and moves it there; False where ``path`` is no plain file, the folder takes no
    other, or the system keeps the file where it is, as it does one that is mounted. Raises OSError for a full disk."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        return False
    with ExitStack() as stack:
        try:
            partial = stack.enter_context(beside(path))
        except OSError:
            return False
        partial.write_text(text, encoding="utf-8")
        if path.exists():
            partial.chmod(path.stat().st_mode)
        else:
            shared(partial)
        try:
            partial.replace(path)
        except OSError:
            return False
    return True


def shared(path: Path) -> None:
    """Lets those read a file or folder, made for its owner alone, who may read what the process makes."""
    path.chmod((0o777 if path.is_dir() else 0o666) & ~_umask())


def _umask() -> int:
    """The bits that new files have not; the system tells them only to who sets them."""
    found = os.umask(0o077)
    os.umask(found)
    return found


def appear(written: Path, path: Path) -> None:
    """Moves a file to ``path``, in the same file system; for a moment that is empty. Raises FileExistsError where
    something is there, and OSError."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    try:
        written.replace(path)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
