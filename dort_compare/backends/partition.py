"""What of a graph runs in ONNX Runtime, in one piece or in several, and what falls back to eager torch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from torch import fx

from dort_compare.backends.aot import compile_id, still_inputs
from dort_compare.backends.building import Building, Built
from dort_compare.backends.cached import Cached
from dort_compare.backends.cut import split_graph
from dort_compare.backends.fallback import Fallback, warn
from dort_compare.backends.left_to_torch import left_to_torch
from dort_compare.backends.options import Options
from dort_compare.backends.pieces import boxed_graph, install, pieces_of
from dort_compare.backends.refused_calls import all_calls, refused_calls
from dort_compare.backends.release_activations import parts
from dort_compare.cache import Store
from dort_compare.descriptors import is_token
from dort_compare.errors import RuntimeUnavailableError, UnsupportedGraphError, UsageError
from dort_compare.fx_graph import attribute_of
from dort_compare.log import Compilation, Piece, compiling
from dort_compare.lowering.foreign import foreign_kind
from dort_compare.lowering.lowered import Lowered
from dort_compare.lowering.survey import reason_of
from dort_compare.provenance import Phase
from dort_compare.runtime import Program
from dort_compare.runtime.boxed import Boxed

_LOG = logging.getLogger("dort_compare.backends")


@dataclass(frozen=True)
class KeptPiece:
    """What a backend makes of a piece that runs in ONNX Runtime: the boxed callable to run, its name in the dump."""

    boxed: Boxed
    dumped: str | None = None


Keep = Callable[[fx.GraphModule, Lowered, Program], KeptPiece]
_Box = Callable[[fx.GraphModule, Lowered, Program], Boxed]


def compile_graph(
    options: Options,
    graph_module: fx.GraphModule,
    example_inputs: Sequence[Any],
    phase: Phase,
    keep: Keep,
    *,
    store: Store | None = None,
    serving: bool = False,
) -> tuple[Boxed, Sequence[Fallback]]:
    """The boxed callable for one AOTAutograd graph, and which of its nodes fall back to eager torch.

    The graph is lowered whole; only where that fails is it cut around what ONNX Runtime does not run. Each piece that
    it does run is given to ``keep`` like a whole graph. What ``store`` holds is not lowered again. A graph that is
    ``serving``, and not to be looked at, is cut for speed too: around what torch's kernels do better, and, a backward
    one, to release what it reads as it runs.

    Raises what lowering and runtime raise where ``options.fallback`` is off; a wrong call (UsageError) or a provider
    that is not there (RuntimeUnavailableError) is raised in any case.
    """
    with compiling(options.verbose, graph_module, phase, compile_id()) as told:
        still = still_inputs(graph_module) if options.freeze and phase == "inference" else frozenset()
        given = options, example_inputs, phase, still, told.stages
        build = Building(*given) if store is None else Cached(*given, store)
        return _compiled(graph_module, build, keep, told, serving)


def _compiled(
    graph_module: fx.GraphModule, build: Building, keep: Keep, told: Compilation, serving: bool
) -> tuple[Boxed, Sequence[Fallback]]:
    options, is_training = build.options, build.phase != "inference"

    def box(piece: fx.GraphModule, lowered: Lowered, program: Program) -> Boxed:
        with told.stages("dump") if options.dump else nullcontext():
            made = keep(piece, lowered, program)
        told.pieces.append(Piece(program.model, made.dumped and f"{made.dumped}.onnx"))
        return made.boxed

    left: Mapping[str, str] = {}
    if serving and options.fallback:
        left = left_to_torch(graph_module, is_recorded=options.cudagraphs, is_training=is_training)
    reasons = _without(left, build.refused(graph_module)) if options.fallback else {}
    work = _Work(graph_module, build, box, told, left)
    if not reasons:
        boxed, reasons = _whole_or_left(work, release=serving and build.phase == "backward")
        if boxed is not None:
            return boxed, ()
    return _cut(work, reasons)


@dataclass(frozen=True)
class _Work:
    """A graph to be compiled by ``build``: calls ``left`` to torch, by name with the reason, and the rest in pieces, of
    each of which ``box`` makes what runs. ``told`` hears what becomes of it."""

    graph_module: fx.GraphModule
    build: Building
    box: _Box
    told: Compilation
    left: Mapping[str, str]


def _whole_or_left(work: _Work, *, release: bool) -> tuple[Boxed | None, dict[str, str]]:
    """The boxed callable for a graph of which nothing but what is left to torch stays out; None, and what to cut it
    around, where that fails. ``release`` as of `_built`."""
    graph_module, build, told, left = work.graph_module, work.build, work.told, work.left
    try:
        split, built = _built(work, release)
    except (RuntimeUnavailableError, UsageError):
        raise
    except Exception as problem:
        if not build.options.fallback:
            raise
        with told.stages("cut"):
            reasons = _without(left, refused_calls(graph_module, build, problem))
        if isinstance(problem, UnsupportedGraphError):  # it will be the next time, too
            build.refuse(graph_module, reasons)
        return None, reasons
    if split is None:
        return work.box(graph_module, *built[0]), {}
    for (name, piece), (lowered, program) in zip(pieces_of(split).items(), built, strict=True):
        install(split, name, work.box(piece, lowered, program), lowered.signature)
    told.in_torch = left
    return boxed_graph(split), {}


def _cut(work: _Work, refused: Mapping[str, str]) -> tuple[Boxed, Sequence[Fallback]]:
    """The boxed callable for a graph cut around what is ``refused``, by name with the reason, and left to torch."""
    with work.told.stages("cut"):
        cut = split_graph(work.graph_module, {**refused, **work.left})
    nodes = {node.name: node for node in work.graph_module.graph.nodes}
    late = _compile_pieces(work, cut)
    reasons = {**refused, **{name: late[name] for name in late if name in nodes}}  # a piece may make views of its own
    work.told.in_torch = {**work.left, **reasons}
    fallbacks = [Fallback.of(nodes[name], work.build.phase, reason) for name, reason in reasons.items()]
    if fallbacks:
        warn(fallbacks, work.graph_module)
    return boxed_graph(cut), fallbacks


def _without(left: Mapping[str, str], reasons: Mapping[str, str]) -> dict[str, str]:
    """What is refused of the rest: what is ``left`` to torch anyway is no fallback."""
    return {name: reason for name, reason in reasons.items() if name not in left}


def _built(work: _Work, release: bool) -> tuple[fx.GraphModule | None, Sequence[Built]]:
    """The programs of the pieces around the calls that are left to torch, and of a graph that is to release what it
    reads in parts, unless a piece of these is refused; of the whole where that is not to be cut. What only hands
    something on that no program takes is cut, too: its pieces do without."""
    if release and (freeing := parts(work.graph_module)):
        try:
            return _pieces_built(work, freeing)
        except (RuntimeUnavailableError, UsageError):
            raise
        except Exception as problem:  # noqa: BLE001  (whatever it is, the graph may do without)
            _LOG.debug("a backward graph is not cut to release what it reads: %s", problem)
    if work.left or _hands_through(work.graph_module):
        return _pieces_built(work, {})
    return None, [work.build(work.graph_module)]


def _pieces_built(work: _Work, freeing: Mapping[fx.Node, int]) -> tuple[fx.GraphModule, Sequence[Built]]:
    split = split_graph(work.graph_module, work.left, freeing)
    return split, [work.build(piece) for piece in pieces_of(split).values()]


def _hands_through(graph_module: fx.GraphModule) -> bool:
    """Whether what enters no ONNX graph is there for no call: a process group, a size of a nested tensor, or a token of
    effects, which is None in a run."""
    held = (node for node in graph_module.graph.nodes if node.op in ("placeholder", "get_attr"))
    idle = (node for node in held if all(user.op == "output" for user in node.users))
    return any(is_token(node) or foreign_kind(_value(node)) for node in idle)


def _value(node: fx.Node) -> Any:
    if node.op == "placeholder":
        return node.meta.get("val")
    return attribute_of(node)


def _compile_pieces(work: _Work, split: fx.GraphModule) -> dict[str, str]:
    """Puts programs in the place of the submodules; returns the calls in pieces that are refused after all."""
    reasons: dict[str, str] = {}
    for name, piece in pieces_of(split).items():
        try:
            built = work.build(piece)
        except Exception as problem:  # noqa: BLE001  (as for the whole graph: no worse than eager)
            reasons |= all_calls(piece, reason_of(problem))
            continue
        install(split, name, work.box(piece, *built), built[0].signature)
    return reasons
