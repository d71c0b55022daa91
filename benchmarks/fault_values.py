"""Faults in numbers: a constant, an epsilon, a precision, a factor, an element, or another tensor of the same shape."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from planted import Draft, Fault, Site, onnx_type

_SMALL = 1e-2
_NARROWER = {
    torch.float64: (torch.float32, torch.float16),
    torch.float32: (torch.float16, torch.bfloat16),
    torch.float16: (torch.bfloat16,),
    torch.int64: (torch.float16,),
}
_LITTLE = {torch.float64: 512.0, torch.float32: 128.0, torch.float16: 16.0, torch.bfloat16: 16.0}
"""In units in the last place: eight to sixteen times what the rounding of one op may add."""
_DIVIDES = {"Sqrt": 0, "Reciprocal": 0, "Log": 0, "Div": 1}


def constant(site: Site) -> Iterator[Fault]:
    """A floating constant off by a thousandth, an integer one by one."""
    for position, name in enumerate(site.node.input):
        value = site.constants.get(name)
        if value is None or value.dtype == torch.bool:
            continue
        draft, floating = Draft(site), value.dtype.is_floating_point
        wrong = (value.double() * 1.001).to(value.dtype) if floating else value + 1
        draft.same(inputs={position: draft.constant(wrong)})
        yield draft.fault("constant", f"{site.node.op_type}: constant {position} {'* 1.001' if floating else '+ 1'}")


def epsilon(site: Site) -> Iterator[Fault]:
    """An epsilon of another size, none, or one in another place."""
    for position, name in enumerate(site.node.input):
        value = site.constants.get(name)
        if value is None or not value.dtype.is_floating_point or value.numel() != 1 or not 0 < value.item() < _SMALL:
            continue
        for factor in (0, 0.1, 10, 100):
            draft = Draft(site)
            draft.same(inputs={position: draft.constant((value.double() * factor).to(value.dtype))})
            yield draft.fault("epsilon", f"{site.node.op_type}: epsilon * {factor}")
    if "epsilon" in site.attributes():
        own = site.attributes()["epsilon"]
        for factor in (0.1, 10, 100):
            yield Draft(site).same(epsilon=own * factor).fault("epsilon", f"{site.node.op_type}: epsilon * {factor}")
    place = _DIVIDES.get(site.node.op_type)
    if place is not None and site.inputs()[place].dtype.is_floating_point:
        for size in (1e-5, 1e-3):
            draft = Draft(site)
            added = draft.constant(torch.tensor(size, dtype=site.inputs()[place].dtype))
            draft.same(inputs={place: draft.node("Add", site.node.input[place], added)})
            yield draft.fault("epsilon", f"{site.node.op_type}: {size} added to what it divides by or takes a root of")


def cast(site: Site) -> Iterator[Fault]:
    """The result, or one operand, taken through a narrower dtype."""
    if len(site.node.output) == 1:
        for narrow in _NARROWER.get(site.output().dtype, ()):
            draft = Draft(site)
            low = draft.node("Cast", draft.behind(), to=onnx_type(narrow))
            draft.last("Cast", low, to=onnx_type(site.output().dtype))
            yield draft.fault("cast", f"{site.node.op_type}: result through {narrow}")
    for position, name in enumerate(site.node.input):
        if not name or name in site.constants:
            continue
        value = site.value(name)
        for narrow in _NARROWER.get(value.dtype, ()):
            draft = Draft(site)
            low = draft.node("Cast", name, to=onnx_type(narrow))
            draft.same(inputs={position: draft.node("Cast", low, to=onnx_type(value.dtype))})
            yield draft.fault("cast", f"{site.node.op_type}: operand {position} through {narrow}")


def factor(site: Site) -> Iterator[Fault]:
    """The result times a number: the batch size that a mean forgot, or little more than what noise may do."""
    dtype = site.output().dtype
    if not dtype.is_floating_point or len(site.node.output) > 1:
        return
    for size in (2.0, 1 + _LITTLE.get(dtype, 0.0) * torch.finfo(dtype).eps):
        draft = Draft(site)
        by = draft.constant(torch.tensor(size, dtype=site.output().dtype))
        yield draft.last("Mul", draft.behind(), by, floating=(0, 1)).fault("factor", f"{site.node.op_type} * {size:g}")


def element(site: Site) -> Iterator[Fault]:
    """One element wrong: the last is the first's, zero, or NaN; the tail that a kernel did not reach."""
    value = site.output()
    if len(site.node.output) > 1 or value.numel() < 2:
        return
    draft = Draft(site)
    order = torch.arange(value.numel())
    order[-1] = 0
    flat = draft.node("Reshape", draft.behind(), draft.shape([-1]))
    taken = draft.node("Gather", flat, draft.constant(order), axis=0)
    yield draft.last("Reshape", taken, draft.shape(value.shape)).fault("element", f"{site.node.op_type}: last is first")
    if value.dtype.is_floating_point:
        for wrong in (0.0, float("nan")):
            draft = Draft(site)
            keep = torch.ones(value.shape, dtype=torch.bool)
            keep.view(-1)[-1] = False
            filler = draft.constant(torch.tensor(wrong, dtype=value.dtype))
            draft.last("Where", draft.constant(keep), draft.behind(), filler, floating=(1, 2))
            yield draft.fault("element", f"{site.node.op_type}: last is {wrong}")


def other(site: Site) -> Iterator[Fault]:
    """Another tensor of the same dtype and shape in the place of an operand: exchanged weights, saved activations."""
    for position, name in enumerate(site.node.input):
        if not name or name in site.constants:
            continue
        own = site.value(name)
        alike = (n for n in reversed(site.earlier) if n not in site.node.input and _alike(site.value(n), own))
        found = next(alike, None)
        if found is not None:
            fault = Draft(site).same(inputs={position: found})
            yield fault.fault("other", f"{site.node.op_type}: {found} for {name}")


def _alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and not torch.equal(a, b)


KINDS = {
    "constant": constant,
    "epsilon": epsilon,
    "cast": cast,
    "factor": factor,
    "element": element,
    "other": other,
}
