"""Faults in what is computed: another operator, exchanged operands, a term or a mask that is lost, a sign."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from planted import Draft, Fault, Site

SIMILAR = {
    "Add": ("Sub", "Mul", "Max"),
    "Sub": ("Add",),
    "Mul": ("Div", "Add"),
    "Div": ("Mul", "Sub"),
    "Max": ("Min", "Sum"),
    "Min": ("Max",),
    "Sin": ("Cos", "Tan", "Sinh"),
    "Cos": ("Sin", "Cosh"),
    "Exp": ("Softplus", "Sinh"),
    "Log": ("Sqrt",),
    "Sqrt": ("Reciprocal", "Identity"),
    "Reciprocal": ("Neg", "Identity"),
    "Neg": ("Identity", "Abs"),
    "Abs": ("Identity", "Relu"),
    "Sigmoid": ("Tanh", "HardSigmoid", "Softsign"),
    "Tanh": ("Sigmoid", "Erf", "HardSwish"),
    "Erf": ("Tanh",),
    "Relu": ("Abs", "LeakyRelu", "Softplus", "Elu"),
    "Softmax": ("LogSoftmax", "Hardmax"),
    "LogSoftmax": ("Softmax",),
    "Floor": ("Ceil", "Round"),
    "Ceil": ("Floor",),
    "Round": ("Floor",),
    "Greater": ("GreaterOrEqual", "Less"),
    "GreaterOrEqual": ("Greater", "LessOrEqual"),
    "Less": ("LessOrEqual", "Greater"),
    "LessOrEqual": ("Less", "GreaterOrEqual"),
    "And": ("Or", "Xor"),
    "Or": ("And", "Xor"),
    "Not": ("Identity",),
    "BitwiseAnd": ("BitwiseOr", "BitwiseXor"),
    "ReduceSum": ("ReduceMean", "ReduceMax", "ReduceL1", "ReduceSumSquare"),
    "ReduceMean": ("ReduceSum", "ReduceMax"),
    "ReduceMax": ("ReduceMin", "ReduceMean"),
    "ReduceMin": ("ReduceMax",),
    "ReduceProd": ("ReduceSum",),
    "AveragePool": ("MaxPool", "LpPool"),
    "MaxPool": ("AveragePool",),
    "ArgMax": ("ArgMin",),
}
"""Operators that take the same operands. Some of the pairs agree on some data: those faults are too small to count."""

_ORDERED = ("Sub", "Div", "Pow", "MatMul", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Concat", "Mod")
_CHOICES = ("Where",)


def operator(site: Site) -> Iterator[Fault]:
    """A similar operator in its place."""
    for other in SIMILAR.get(site.node.op_type, ()):
        yield Draft(site).same(op_type=other).fault("operator", f"{site.node.op_type} -> {other}")


def operands(site: Site) -> Iterator[Fault]:
    """Two operands exchanged where their order matters."""
    op_type, names = site.node.op_type, site.node.input
    if op_type in _ORDERED and len(names) > 1 and names[0] != names[1]:
        yield Draft(site).same(inputs={0: names[1], 1: names[0]}).fault("operands", f"{op_type}(b, a)")
    if op_type in _CHOICES and names[1] != names[2]:
        yield Draft(site).same(inputs={1: names[2], 2: names[1]}).fault("operands", f"{op_type}(c, b, a)")


def halves(site: Site) -> Iterator[Fault]:
    """The parts of a split, or of a concatenation, of which one may be a rotation's negated half, exchanged."""
    node = site.node
    if node.op_type == "Split" and len(node.output) > 1:
        draft = Draft(site)
        draft.same()
        draft.nodes[-1].output[:] = [*reversed(node.output)]
        yield draft.fault("halves", "outputs of Split reversed")
    if node.op_type == "Concat" and len(node.input) > 1 and node.input[0] != node.input[-1]:
        draft = Draft(site)
        reverse = dict(enumerate(reversed(list(node.input))))
        yield draft.same(inputs=reverse).fault("halves", "operands of Concat reversed")


def term(site: Site) -> Iterator[Fault]:
    """A term or a factor lost: the other operand alone, in the shape of the result."""
    if site.node.op_type not in ("Add", "Sub", "Mul", "Div", "Sum", "Pow", "Max", "Min"):
        return
    for position, name in enumerate(site.node.input):
        yield _only(site, name, "term", f"{site.node.op_type}: operand {position} alone")


def mask(site: Site) -> Iterator[Fault]:
    """A mask lost, taken the other way round, or moved along the diagonal."""
    node = site.node
    if node.op_type == "Where":
        for position in (1, 2):
            yield _only(site, node.input[position], "mask", f"Where: always operand {position}")
        draft = Draft(site)
        yield draft.same(inputs={0: draft.node("Not", node.input[0])}).fault("mask", "Where: condition negated")
    if node.op_type in ("And", "Or"):
        for position in (0, 1):
            yield _only(site, node.input[position], "mask", f"{node.op_type}: operand {position} alone")
    if node.op_type == "Trilu":
        yield _only(site, node.input[0], "mask", "Trilu lost")
        upper = site.attributes().get("upper", 1)
        yield Draft(site).same(upper=1 - upper).fault("mask", "Trilu: the other triangle")
        for step in (-1, 1):
            k = site.constant(1)
            draft = Draft(site)
            moved = draft.constant(torch.tensor(step, dtype=torch.int64) if k is None else k + step)
            draft.last("Trilu", node.input[0], moved, **site.attributes())
            yield draft.fault("mask", f"Trilu: diagonal {step:+d}")


def sign(site: Site) -> Iterator[Fault]:
    """The sign of a result, such as a gradient's."""
    if site.output().dtype.is_floating_point and len(site.node.output) == 1:
        draft = Draft(site)
        yield draft.last("Neg", draft.behind(), floating=(0,)).fault("sign", f"-{site.node.op_type}")


def _only(site: Site, name: str, kind: str, what: str) -> Fault:
    draft = Draft(site)
    return draft.last("Expand", name, draft.shape(site.output().shape), floating=(0,)).fault(kind, what)


KINDS = {
    "operator": operator,
    "operands": operands,
    "halves": halves,
    "term": term,
    "mask": mask,
    "sign": sign,
}
