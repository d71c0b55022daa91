"""A room imports only from floors below its own."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import dort_compare

PACKAGE = Path(dort_compare.__file__).parent
FLOORS = [
    {"checks", "dtypes", "errors", "files", "plain", "problems", "protos", "provenance", "randomness", "scalars"}
    | {"captures", "descriptors", "fx_graph", "generated", "layouts", "models", "node_meta", "signature", "stages"}
    | {"unset", "views", "writes"},
    {"rewrites"},
    {"log", "lowering", "runtime", "dump"},
    {"cache"},
    {"backends", "trace"},
    {"align", "compiled"},
    {"measure"},
    {"report"},
    {"comparison"},
    {"api", "onnx_diff", "repro"},
    {"doctor", "offline"},
    {"cli", "testing"},
    {"__init__", "__main__"},
]
NEIGHBOURS = {
    "checks", "descriptors", "files", "plain", "problems", "provenance", "scalars", "signature", "views",
}  # fmt: skip
"""Rooms that may import others of their own floor."""
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
FILES = sorted(PACKAGE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    parts = [name.split(".") for name in names if name.split(".")[0] == "dort_compare"]
    return {rest[0] for _, *rest in parts if rest}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    room = room_of(path)
    if room in ("models", "errors"):
        assert imported_rooms(path) <= {room, "errors"}
        return
    same_floor = FLOORS[FLOOR[room]] if room in NEIGHBOURS else {room}
    for other in imported_rooms(path):
        assert FLOOR[other] < FLOOR[room] or other in same_floor, f"{room} imports {other}"


def test_every_room_has_a_floor() -> None:
    assert {room_of(path) for path in FILES} <= FLOOR.keys()


def test_the_page_shows_these_floors() -> None:
    page = (PACKAGE.parent / "docs" / "design.md").read_text()
    told = [set(re.findall(r"`(\w+)`", line)) for line in re.findall(r"^\| \d+ \|(.*)\|$", page, re.MULTILINE)]
    assert told == [rooms for rooms in FLOORS if "__init__" not in rooms]
