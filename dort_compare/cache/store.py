"""Reads and writes entries, several processes at once. Where that fails, it is as if there were none."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dort_compare.cache.entry import DamagedEntryError, Entry
from dort_compare.cache.folder import FOLDER_VARIABLE, trim
from dort_compare.files import beside

LARGEST = 2**26
"""Bytes of the largest entry that is written or read."""

_LOG = logging.getLogger("dort_compare.cache")


class Store:
    """The entries in a folder, which is made when the first is written. What happens is logged at level DEBUG."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, key: str) -> Entry | None:
        """The entry of that key; None where there is none or it is damaged."""
        path = self.folder / key
        with self._usable():
            if path.is_symlink() or not path.is_file() or path.stat().st_size > LARGEST:
                return None
            data = path.read_bytes()
            try:
                entry = Entry.of(data)
                if entry.key != key:
                    raise DamagedEntryError("it is the entry of another graph")
            except DamagedEntryError as problem:
                _LOG.debug("%s is made again: %s", path, problem)
                return None
            with suppress(OSError):  # a folder that is only read
                os.utime(path)
            return entry
        return None

    def write(self, entry: Entry) -> None:
        """Keeps an entry, in the place of one of the same key; not one that is too large."""
        data = entry.to_bytes()
        if len(data) > LARGEST:
            _LOG.debug("not kept: a model of %d MiB", len(data) >> 20)
            return
        with self._usable():
            if not self.folder.is_absolute():
                raise OSError("the user has no home folder")
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._put(entry.key, data)
            trim(self.folder)

    def _put(self, name: str, data: bytes) -> None:
        with beside(self.folder / name) as partial:
            partial.write_bytes(data)
            with suppress(FileNotFoundError):  # another process has just cleared the folder
                partial.replace(self.folder / name)

    @contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except FileExistsError:
            _warn_once(self.folder, "it is no folder")
        except OSError as problem:
            _warn_once(self.folder, problem.strerror or str(problem))


@functools.cache
def _warn_once(folder: Path, reason: str) -> None:
    _LOG.warning(
        "graphs are compiled without the cache in %s: %s; name another one (option cache, or %s), or give cache=False",
        folder,
        reason,
        FOLDER_VARIABLE,
    )
