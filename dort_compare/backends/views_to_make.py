"""Which saved activations a backward graph is to make itself: views whose memory is not as a session takes it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from torch import fx

from dort_compare.backends.plain_views import base_of
from dort_compare.layouts import layout_of
from dort_compare.views import history


def views_to_make(
    saved: Sequence[fx.Node], returned: Sequence[Any], read: Collection[fx.Node]
) -> Iterator[tuple[fx.Node, list[fx.Node]]]:
    """What is to be saved, with the saved views of it that the backward graph is to make of it: of those that it has
    ``read`` by their names."""
    found: dict[fx.Node, list[fx.Node]] = defaultdict(list)
    others: list[Any] = list(returned)
    for node in saved:
        base = base_of(node) if node in read else None
        (others if base is None else found[base]).append(node)
    kept_apart = {source for node in others if isinstance(node, fx.Node) for source in history(node)[1]}
    for base, nodes in found.items():
        views = [node for node in nodes if not node.meta["val"].is_contiguous()]
        if base.meta["val"].is_contiguous():
            is_most = 2 * sum(view.meta["val"].numel() for view in views) >= base.meta["val"].numel()
            if views and is_most and (base not in saved or base in read):
                yield base, views
        elif base.op == "call_function" and base not in kept_apart and layout_of(base.meta["val"]):
            yield base, nodes
