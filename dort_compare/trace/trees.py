"""What stands where in what models take and return."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch.utils import _pytree as pytree


def named_leaves(tree: Any) -> Iterator[tuple[str, Any]]:
    """The leaves of a pytree, each by its path as torch writes it: "" for a tree that is a leaf, "[0]['logits']".

    A container that was registered without paths, as diffusers registers its outputs, has those of a dict if it is a
    mapping of its leaves, else those of a list. torch's own functions raise ValueError at such a one.
    """
    for path, leaf in pytree.tree_flatten_with_path(tree, is_leaf=_has_no_paths)[0]:
        name = pytree.keystr(path)
        if not _has_no_paths(leaf):
            yield name, leaf
            continue
        children = list(pytree.SUPPORTED_NODES[type(leaf)].flatten_fn(leaf)[0])
        is_named = isinstance(leaf, Mapping) and list(map(id, leaf.values())) == list(map(id, children))
        for key, child in zip(leaf if is_named else range(len(children)), children, strict=True):
            yield from ((f"{name}[{key!r}]{rest}", inner) for rest, inner in named_leaves(child))


def _has_no_paths(tree: Any) -> bool:
    node = pytree.SUPPORTED_NODES.get(type(tree))
    return node is not None and node.flatten_with_keys_fn is None
