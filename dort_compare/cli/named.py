"""What a command line names: ``package.module:attribute``, ``path/to/file.py:attribute``, with arguments if need be."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from dort_compare.cli.frames import theirs
from dort_compare.errors import UsageError, nearest

_FORM = re.compile(r"(?P<place>.+?\.py|\w+(?:\.\w+)*):(?P<expression>.+)", re.DOTALL)


@dataclass(frozen=True)
class Named:
    """``place`` is a module or a file, ``path`` the attributes that lead to the object, ``arguments`` what it is called
    with, None where it is only named."""

    text: str
    place: str
    path: tuple[str, ...]
    arguments: tuple[tuple[Any, ...], Mapping[str, Any]] | None

    @classmethod
    def of(cls, text: str) -> Named:
        """Reads ``module:make``, ``module:Class.make``, ``module:make(4, bias=False)``: arguments are literals.

        Raises UsageError for any other form.
        """
        found = _FORM.fullmatch(text)
        if not found:
            raise UsageError(f"{text!r} names nothing; give package.module:factory or path/to/file.py:factory")
        try:
            return cls(text, found["place"], *_read(ast.parse(found["expression"].strip(), mode="eval").body))
        except (SyntaxError, ValueError):
            raise UsageError(
                f"{found['expression']!r} is no factory; give a name, or a call with literals: make(4, bias=True)"
            ) from None

    def load(self) -> Any:
        """The object that is named, uncalled.

        Raises UsageError where there is none, UserCodeError for what its module raises.
        """
        found: Any = _module(self.place)
        for name in self.path:
            if not hasattr(found, name):
                hint = nearest(name, dir(found)) or "; name one that it defines"
                raise UsageError(f"{self.place} has no {'.'.join(self.path)!r}{hint}")
            found = getattr(found, name)
        return found

    def function(self) -> Callable[..., Any]:
        """The callable that is named. Raises UsageError where it is none, or is called."""
        found = self.load()
        if self.arguments is not None or not callable(found):
            raise UsageError(f"{self.text} is no function; name one, without arguments")
        return found

    def made(self) -> Any:
        """What the factory returns; an object that needs no call, as it is. Raises UserCodeError for what it raises."""
        found = self.load()
        if self.arguments is None and _is_module(found):
            return found
        if not callable(found):
            raise UsageError(
                f"{self.text} is of type {type(found).__name__}; name a callable that returns a torch.nn.Module"
            )
        args, kwargs = self.arguments or ((), {})
        with theirs(self.text):
            return found(*args, **kwargs)


def _read(node: ast.expr) -> tuple[tuple[str, ...], tuple[tuple[Any, ...], Mapping[str, Any]] | None]:
    """The names that lead to an object, and its literal arguments. Raises ValueError for anything else."""
    if not isinstance(node, ast.Call):
        return _path(node), None
    if any(keyword.arg is None for keyword in node.keywords):
        raise ValueError
    keywords = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
    return _path(node.func), (tuple(map(ast.literal_eval, node.args)), keywords)


def _path(node: ast.expr) -> tuple[str, ...]:
    if isinstance(node, ast.Attribute):
        return (*_path(node.value), node.attr)
    if isinstance(node, ast.Name):
        return (node.id,)
    raise ValueError


def _module(place: str) -> ModuleType:
    """The module of that name, the current folder looked in first as ``python -m`` does, or that of a file, its own
    folder looked in first as ``python file.py`` does."""
    if place.endswith(".py"):
        return _of_file(Path(place))
    _look_in(Path.cwd())
    with theirs(place):
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError as problem:
            if not (problem.name and f"{place}.".startswith(f"{problem.name}.")):
                raise
    file = f"{place.replace('.', '/')}.py"
    raise UsageError(
        f"there is no module {place} in this folder or among the installed packages; "
        f"install it, change the folder, or name the file: path/to/{file}:factory"
    )


def _of_file(file: Path) -> ModuleType:
    try:
        if not file.is_file():
            raise UsageError(f"there is no file {file}; name one that exists: path/to/file.py:factory")
    except OSError as problem:
        raise UsageError(f"{file} cannot be read: {problem.strerror}; name another file") from None
    path = file.resolve()
    _look_in(path.parent)
    name = f"_{path.stem}_"  # not its own: a file may be called like a package that it, or torch, imports
    known = sys.modules.get(name)
    if known is not None and known.__file__ == str(path):
        return known
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    with theirs(str(file)):
        spec.loader.exec_module(module)
    return module


def _look_in(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _is_module(found: Any) -> bool:
    import torch

    return isinstance(found, torch.nn.Module)
