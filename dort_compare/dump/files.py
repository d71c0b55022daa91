"""Files that are there whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from dort_compare.errors import DumpError
from dort_compare.files import appear, beside, shared


def write_whole(path: Path, write: Callable[[Path], object], *, replace: bool = False) -> None:
    """Lets ``write`` fill a file beside ``path`` and then moves it there.

    Raises DumpError where ``path`` exists (unless ``replace``) or the folder cannot be written.
    """
    with writing(path), beside(path) as partial:
        write(partial)
        shared(partial)
        if replace:
            partial.replace(path)
        else:
            appear(partial, path)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Within it ``path`` is written. Raises DumpError where that fails."""
    try:
        yield
    except FileExistsError:
        raise DumpError(f"{path} exists already and is not overwritten; remove it or choose another folder") from None
    except (OSError, SafetensorError) as problem:
        raise DumpError(
            f"cannot write {path}: {getattr(problem, 'strerror', None) or problem}; choose a folder that is writable"
        ) from None


def is_plain_name(name: str) -> bool:
    """Whether ``name`` can stand for a file of a dump, on every system: it leads nowhere and steers no terminal."""
    return name == Path(name).name and name not in ("", "..") and name.isprintable() and "\\" not in name


class NewFiles:
    """Files that belong together, in one folder: all of them are there, or none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._added: list[Path] = []

    @classmethod
    @contextmanager
    def in_folder(cls, folder: Path) -> Iterator[NewFiles]:
        """Files added in the block are removed where it ends with an error or an interrupt."""
        files = cls(folder)
        try:
            yield files
        except BaseException:
            for path in files._added:
                path.unlink(missing_ok=True)
            raise

    def add(self, name: str, write: Callable[[Path], object]) -> None:
        """Lets ``write`` fill the file. Raises DumpError as ``write_whole`` does."""
        path = self.folder / name
        write_whole(path, write)
        self._added.append(path)

    def move(self, written: Path) -> None:
        """Takes over a file from a folder beside. Raises DumpError as ``write_whole`` does."""
        path = self.folder / written.name
        with writing(path):
            shared(written)
            appear(written, path)
        self._added.append(path)
