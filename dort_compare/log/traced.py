"""What is told of a graph of dynamo on its way through AOTAutograd."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import fx

from dort_compare.descriptors import Role, attach, given_to
from dort_compare.log.loggers import MODULES, STAGES, loggers, tell
from dort_compare.log.values import milliseconds, size_of
from dort_compare.stages import Stages


class DynamoGraph:
    """Lets the graphs that AOTAutograd makes of a graph of dynamo know what was ``given`` to that one."""

    def __init__(self, given: Sequence[Role]) -> None:
        self.given = given
        self.stages = Stages()

    def around(self, compiler: Callable[..., Any]) -> Callable[..., Any]:
        """The compiler of a graph, whose time is not AOTAutograd's."""

        def compile_graph(graph_module: fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
            attach(graph_module, self.given)
            with self.stages("graphs"):
                return compiler(graph_module, *args, **kwargs)

        return compile_graph


@contextmanager
def tracing(verbose: int, graph_module: fx.GraphModule, compile_id: str | None) -> Iterator[DynamoGraph]:
    """Tells, where a logger listens, that AOTAutograd traces a graph and how long that takes."""
    listeners = loggers(verbose)
    title = f"dynamo graph {compile_id or ''}".rstrip()
    tell(listeners, [(STAGES, lambda: f"{title}: {size_of(graph_module.graph)}")])
    is_read = any(logger.isEnabledFor(MODULES) for logger in listeners)
    told = DynamoGraph(given_to(graph_module) if is_read else ())
    begun = time.perf_counter()
    yield told
    took = time.perf_counter() - begun - told.stages.seconds.get("graphs", 0.0)
    tell(listeners, [(STAGES, lambda: f"{title}: AOTAutograd {milliseconds(took)}")])
