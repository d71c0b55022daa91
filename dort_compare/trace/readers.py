"""What an FX graph computes of given values, and what it computes a value of."""

from __future__ import annotations

from collections.abc import Iterable

from torch import fx


def behind(nodes: Iterable[fx.Node]) -> set[fx.Node]:
    """``nodes``, and all that reads them, directly or not."""
    found: set[fx.Node] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting.extend(node.users)
    return found


def computed_of(node: fx.Node) -> set[fx.Node]:
    """All that ``node`` reads, directly or not."""
    found: set[fx.Node] = set()
    waiting = list(node.all_input_nodes)
    while waiting:
        read = waiting.pop()
        if read not in found:
            found.add(read)
            waiting.extend(read.all_input_nodes)
    return found
