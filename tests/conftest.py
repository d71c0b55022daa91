"""What tests of several rooms share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from dort_compare import DebugBackend
from dort_compare.backends import CompiledGraph

GraphsOf = Callable[..., list[CompiledGraph]]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """No test sees what another one compiled or drew."""
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


@pytest.fixture
def graphs_of() -> GraphsOf:
    """``graphs_of(function, *args)``: the graphs of a call and, where it requires grad, of its backward."""

    def graphs(
        function: Callable[..., Any], *args: Any, dynamic: bool | None = None, **options: Any
    ) -> list[CompiledGraph]:
        backend = DebugBackend(**{"fallback": False, **options})
        result = torch.compile(function, backend=backend, dynamic=dynamic)(*args)
        if result.requires_grad:
            result.sum().backward()
        return backend.graphs

    return graphs
