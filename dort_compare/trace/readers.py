"""What an FX graph computes of given values."""

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
