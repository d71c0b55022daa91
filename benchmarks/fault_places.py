"""Faults in where things stand: axes, permutations, slices, indices, layouts, broadcasts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import torch
from planted import Draft, Fault, Site

_AXES_OPERAND = {"ReduceSum": 1, "ReduceMean": 1, "ReduceMax": 1, "ReduceMin": 1, "ReduceProd": 1}
_INDEX_OPERAND = {"Gather": 1, "GatherElements": 1, "GatherND": 1, "ScatterElements": 1, "ScatterND": 1}
_BINARY = ("Add", "Sub", "Mul", "Div", "And", "Where")


def axis(site: Site) -> Iterator[Fault]:
    """Another axis, where shapes allow it."""
    rank = site.inputs()[0].ndim if site.inputs() else 0
    if "axis" in site.attributes():
        own = site.attributes()["axis"] % max(rank, 1)
        for other in range(rank):
            if other != own:
                yield Draft(site).same(axis=other).fault("axis", f"{site.node.op_type}: axis {own} -> {other}")
    axes = site.constant(_AXES_OPERAND.get(site.node.op_type, 99))
    if axes is not None and axes.numel() == 1:
        own = int(axes.item()) % max(rank, 1)
        for other in range(rank):
            if other != own:
                draft = Draft(site)
                draft.same(inputs={_AXES_OPERAND[site.node.op_type]: draft.shape([other])})
                yield draft.fault("axis", f"{site.node.op_type}: axis {own} -> {other}")


def permutation(site: Site) -> Iterator[Fault]:
    """A transposition with another permutation, or done as if it were a reshape; a reshape of what was transposed."""
    node = site.node
    if node.op_type == "Transpose":
        perm = list(site.attributes()["perm"])
        others = {tuple(_exchanged(perm, i, j)) for i, j in itertools.combinations(range(len(perm)), 2)}
        for other in sorted(others):
            yield Draft(site).same(perm=list(other)).fault("permutation", f"Transpose: {perm} -> {list(other)}")
        yield _reshaped(site, node.input[0], Draft(site), "Transpose -> Reshape")
    if node.op_type in ("Reshape", "Identity") and site.inputs()[0].ndim > 1:
        rank = site.inputs()[0].ndim
        for i in range(rank - 1):
            draft = Draft(site)
            turned = draft.node("Transpose", node.input[0], perm=_exchanged(range(rank), i, i + 1))
            yield _reshaped(site, turned, draft, f"{node.op_type} reads axes {i} and {i + 1} exchanged")
    if node.op_type == "MatMul":
        for position, value in enumerate(site.inputs()):
            draft = Draft(site)
            turned = draft.node("Transpose", node.input[position], perm=_exchanged(range(value.ndim), -1, -2))
            yield draft.same(inputs={position: turned}).fault("permutation", f"MatMul: operand {position} transposed")


def slices(site: Site) -> Iterator[Fault]:
    """Off by one: the slice, the pads, or, where a slice has no room, everything moved around by one."""
    node = site.node
    if node.op_type == "Slice" and site.constant(1) is not None and site.constant(2) is not None:
        for step in (-1, 1):
            draft = Draft(site)
            ends = {i: draft.constant(_moved(site, i, step)) for i in (1, 2)}
            yield draft.same(inputs=ends).fault("slice", f"Slice: {step:+d}")
    pads = site.constant(1) if node.op_type == "Pad" else None
    if pads is not None and pads.any():
        half = pads.numel() // 2
        for step in (-1, 1):
            draft = Draft(site)
            moved = torch.where(pads[:half] + pads[half:] > 0, step, 0)
            draft.same(inputs={1: draft.constant(torch.cat([pads[:half] + moved, pads[half:] - moved]))})
            yield draft.fault("slice", f"Pad: {step:+d}")
    if node.op_type in ("Slice", "Split", "Gather", "Concat", "Pad", "Expand"):
        for dim in range(site.output().ndim):
            yield from _rolled(site, dim)


def indices(site: Site) -> Iterator[Fault]:
    """An index off by one, modulo the axis, or the indices in another order."""
    place = _INDEX_OPERAND.get(site.node.op_type)
    if place is None:
        return
    data, index = site.inputs()[0], site.inputs()[place]
    size = data.shape[site.attributes().get("axis", 0)] if data.ndim else 1
    draft = Draft(site)
    one, n = draft.constant(torch.ones((), dtype=index.dtype)), draft.constant(torch.tensor(size, dtype=index.dtype))
    wrong = draft.node("Mod", draft.node("Add", site.node.input[place], one), n)
    yield draft.same(inputs={place: wrong}).fault("index", f"{site.node.op_type}: index + 1")
    if index.ndim and index.numel() > 1:
        draft = Draft(site)
        turned = draft.node("Gather", site.node.input[place], draft.shape(reversed(range(index.shape[0]))), axis=0)
        yield draft.same(inputs={place: turned}).fault("index", f"{site.node.op_type}: indices backwards")


def scatter(site: Site) -> Iterator[Fault]:
    """What repeated indices do to each other: the last one stays, or another reduction."""
    if site.node.op_type in ("ScatterElements", "ScatterND"):
        own = site.attributes().get("reduction", b"none").decode()
        for other in ("none", "add", "max", "mul"):
            if other != own:
                draft = Draft(site).same(reduction=other)
                yield draft.fault("scatter", f"{site.node.op_type}: {own} -> {other}")


def broadcast(site: Site) -> Iterator[Fault]:
    """An operand broadcast along another axis; a repeated axis interleaved otherwise."""
    node, rank = site.node, site.output().ndim
    if node.op_type in _BINARY and rank > 1:
        for position, value in enumerate(site.inputs()):
            padded = (1,) * (rank - value.ndim) + tuple(value.shape)
            if value.numel() == 1 or (value.shape == site.output().shape and len(set(value.shape)) == value.ndim):
                continue
            for i, j in itertools.combinations(range(rank), 2):
                draft = Draft(site)
                whole = draft.node("Reshape", node.input[position], draft.shape(padded))
                turned = draft.node("Transpose", whole, perm=_exchanged(range(rank), i, j))
                draft.same(inputs={position: turned})
                yield draft.fault("broadcast", f"{node.op_type}: operand {position}, axes {i} and {j} exchanged")
    if node.op_type == "Expand":
        yield _reshaped_after(site)


def _reshaped_after(site: Site) -> Fault:
    """Repeats the whole tensor where each element should be repeated, or the other way round."""
    draft = Draft(site)
    shape = site.output().shape
    flat = draft.node("Reshape", draft.behind(), draft.shape([-1, shape[-1] if shape else 1]))
    turned = draft.node("Transpose", flat, perm=[1, 0])
    return draft.last("Reshape", turned, draft.shape(shape)).fault("broadcast", "Expand: repeated in another order")


def _reshaped(site: Site, name: str, draft: Draft, what: str) -> Fault:
    return draft.last("Reshape", name, draft.shape(site.output().shape)).fault("permutation", what)


def _rolled(site: Site, dim: int) -> Iterator[Fault]:
    size = site.output().shape[dim]
    if size < 2 or len(site.node.output) > 1:
        return
    draft = Draft(site)
    order = draft.shape([*range(1, size), 0])
    yield draft.last("Gather", draft.behind(), order, axis=dim).fault(
        "slice", f"{site.node.op_type}: axis {dim} by one"
    )


def _moved(site: Site, position: int, step: int) -> torch.Tensor:
    """Starts or ends moved by ``step``; the largest number, which stands for the end, stays."""
    value = site.constant(position)
    assert value is not None
    return torch.where(value > torch.iinfo(torch.int32).max, value, value + step)


def _exchanged(order: Sequence[int], i: int, j: int) -> list[int]:
    changed = list(order)
    changed[i], changed[j] = changed[j], changed[i]
    return changed


KINDS = {
    "axis": axis,
    "permutation": permutation,
    "slice": slices,
    "index": indices,
    "scatter": scatter,
    "broadcast": broadcast,
}
