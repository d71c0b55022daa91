"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError

from dort_compare.errors import DumpError


def write_whole(path: Path, write: Callable[[Path], object], *, replace: bool = False) -> None:
    """Lets ``write`` fill a file beside ``path`` and then moves it there.

    Raises DumpError where ``path`` exists (unless ``replace``) or the folder cannot be written.
    """
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(handle)
        partial = Path(name)
        try:
            write(partial)
            partial.chmod(0o644)
            if replace:
                partial.replace(path)
            else:
                os.link(partial, path)
        finally:
            partial.unlink(missing_ok=True)
    except FileExistsError:
        raise DumpError(f"{path} exists already and is not overwritten; remove it or choose another folder") from None
    except (OSError, SafetensorError) as problem:
        raise DumpError(
            f"cannot write {path}: {getattr(problem, 'strerror', None) or problem}; choose a folder that is writable"
        ) from None
