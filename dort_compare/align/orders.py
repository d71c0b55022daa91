"""The order of dimensions in which a model holds what it has transposed, as channels last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dort_compare.layouts import inverse
from dort_compare.trace.dataflow import Dataflow, Node
from dort_compare.trace.passages import RESHAPES

Order = tuple[int, ...]
"""``tensor.permute(order)`` has its dimensions as they were before the transposes."""
Shape = tuple[int, ...]

BY_ELEMENT = frozenset({
    "Abs", "Add", "And", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Cast", "CastLike", "Ceil",
    "Celu", "Clip", "Cos", "Div", "Dropout", "Elu", "Equal", "Erf", "Exp", "Floor", "Gelu", "Greater",
    "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu", "Less", "LessOrEqual",
    "Log", "Max", "Mean", "Min", "Mish", "Mod", "Mul", "Neg", "Not", "Or", "PRelu", "Pow", "Reciprocal", "Relu",
    "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Sub", "Sum", "Swish", "Tan", "Tanh",
    "ThresholdedRelu", "Where", "Xor"
})  # fmt: skip
"""Operators that compute element by element, whatever the order of dimensions."""
_ALONG_AXES = frozenset({
    "ArgMax", "ArgMin", "Compress", "Concat", "CumSum", "DequantizeLinear", "Gather", "GatherElements", "Hardmax",
    "LayerNormalization", "LogSoftmax", "LpNormalization", "Pad", "QuantizeLinear", "RMSNormalization", "Resize",
    "ScatterElements", "Slice", "Softmax", "Split", "Tile", "TopK", "ReduceL1", "ReduceL2", "ReduceLogSum",
    "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
    "Upsample"
})  # fmt: skip
"""Operators that are told axes, and keep the order of dimensions of what they read."""


def followed(order: Order, by: Order) -> Order:
    """One permutation after the other, as one."""
    return tuple(order[i] for i in by)


def moved_part(order: Order) -> Order:
    """An order without the first dimensions that stay where they are, of which a reshape makes more or fewer."""
    stay = next((i for i, dim in enumerate(order) if i != dim), len(order))
    return tuple(dim - stay for dim in order[stay:])


def permutation(node: Node, rank: int) -> Order:
    """What a Transpose does."""
    given = next((tuple(a.ints) for a in node.proto.attribute if a.name == "perm"), ())
    return given or tuple(reversed(range(rank)))


def reshaped(order: Order, before: Shape, after: Shape) -> Order | None:
    """The order of what gains or loses dimensions of size 1; None where others change."""
    left, kept, gained = list(enumerate(before)), {}, []
    for new_dim, new_size in enumerate(after):
        while left and left[0][1] == 1 != new_size:
            left.pop(0)
        if left and left[0][1] == new_size:
            kept[left.pop(0)[0]] = new_dim
        elif new_size == 1:
            gained.append(new_dim)
        else:
            return None
    if any(size != 1 for _, size in left):
        return None
    found = [kept[dim] for dim in order if dim in kept]
    for dim in gained:
        found.insert(dim, dim)
    return tuple(found)


def moves_elements(order: Order, shape: Sequence[int]) -> bool:
    """Whether elements of a tensor of ``shape`` come to lie in another order."""
    moved = [dim for dim in order if shape[dim] != 1]
    return moved != sorted(moved)


class Orders:
    """Learns the order of each value of a model from its shape, values given in order of execution.

    ``of`` holds those behind transposes, ``given`` those of its inputs.
    """

    def __init__(self, flow: Dataflow, given: Mapping[str, Order]) -> None:
        self._flow = flow
        self._shapes: dict[str, Shape] = {}
        self.of: dict[str, Order] = dict(given)

    def see(self, name: str, shape: Shape) -> Order | None:
        """The order of a value; None where its elements lie as they were made."""
        self._shapes[name] = shape
        node = self._flow.producer[name][0] if name in self._flow.producer else None
        order = self.of.get(name) if node is None else self._made(node, shape)
        if order is None or len(order) != len(shape):
            return None
        self.of[name] = order
        return order if moves_elements(order, shape) else None

    def _made(self, node: Node, shape: Shape) -> Order | None:
        source = node.operands[0] if node.operands else ""
        if node.proto.op_type == "Transpose":
            before = self.of.get(source, tuple(range(len(shape))))
            return followed(inverse(permutation(node, len(shape))), before) if len(before) == len(shape) else None
        if node.proto.op_type in _ALONG_AXES:
            return self.of.get(source)
        if node.proto.op_type in RESHAPES:
            return reshaped(self.of[source], self._shapes[source], shape) if source in self.of else None
        if node.proto.op_type not in BY_ELEMENT:
            return None
        computed = (name for name in node.operands if name not in self._flow.constants)
        whole = {self.of.get(name) for name in computed if self._shapes.get(name) == shape}
        return whole.pop() if len(whole) == 1 else None
