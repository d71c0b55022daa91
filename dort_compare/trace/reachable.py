"""What an FX graph computes of given values, and what it computes a value of."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch import fx


def behind(nodes: Iterable[fx.Node]) -> set[fx.Node]:
    """``nodes``, and all that reads them, directly or not."""
    return _reached(nodes, lambda node: node.users)


def computed_of(node: fx.Node) -> set[fx.Node]:
    """All that ``node`` reads, directly or not."""
    return _reached(node.all_input_nodes, lambda read: read.all_input_nodes)


def _reached(nodes: Iterable[fx.Node], onwards: Callable[[fx.Node], Iterable[fx.Node]]) -> set[fx.Node]:
    found: set[fx.Node] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting.extend(onwards(node))
    return found
