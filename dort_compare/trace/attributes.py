"""What a model keeps between calls in attributes of its modules: caches, hidden states, counts, hooks."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

_NOT_RESTORED = {"training", "_parameters", "_modules"}
_KINDS = (dict, OrderedDict, defaultdict, list, set, deque)


@contextmanager
def attributes_kept(model: object) -> Iterator[None]:
    """Within it a model may set attributes and buffers of its modules, register hooks, and fill what collections in
    them hold; after it they are as before. What other objects keep is not seen.

    Models of transformers register hooks in their first call, and an attribute says that they have.
    """
    modules = [(vars(module), _attributes(module)) for module in _modules(model)]
    collections = [(each, each.copy()) for _, attributes in modules for each in _collections(attributes)]
    try:
        yield
    finally:
        for collection, content in collections:
            if not _same(collection, content):  # dynamo guards versions of dicts
                _refill(collection, content)
        for attributes, before in modules:
            for name in attributes.keys() - before.keys() - _NOT_RESTORED:
                del attributes[name]
            attributes.update(before)


def attribute_tensors(model: object) -> list[torch.Tensor]:
    """Tensors in attributes of modules, and in collections there, that are no parameters; buffers among them."""
    attributes = [_attributes(module) for module in _modules(model)]
    holders = [holder for found in attributes for holder in (found, *_collections(found))]
    held = {id(each): each for holder in holders for each in _elements(holder) if isinstance(each, torch.Tensor)}
    return [tensor for tensor in held.values() if not isinstance(tensor, nn.Parameter)]


def _modules(model: object) -> Iterator[nn.Module]:
    return model.modules() if isinstance(model, nn.Module) else iter(())


def _attributes(module: nn.Module) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if name not in _NOT_RESTORED}


def _collections(holder: Any, within: tuple[int, ...] = ()) -> Iterator[Any]:
    """The collections in a collection, and in those; ``within`` are the ids of those around it."""
    for each in _elements(holder):
        if type(each) in _KINDS and id(each) not in within:
            yield each
            yield from _collections(each, (*within, id(each)))


def _elements(collection: Any) -> list[Any]:
    return list(collection.values() if isinstance(collection, dict) else collection)


def _same(collection: Any, content: Any) -> bool:
    return [*map(id, collection), *map(id, _elements(collection))] == [*map(id, content), *map(id, _elements(content))]


def _refill(collection: Any, content: Any) -> None:
    collection.clear()
    (collection.extend if isinstance(collection, (list, deque)) else collection.update)(content)
