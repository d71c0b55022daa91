"""What ONNX's schemas say of operators. Each is read once: that takes longer than writing a node."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
import onnx_ir as ir

from dort_compare.errors import LoweringError

_VARIADIC = onnx.defs.OpSchema.FormalParameterOption.Variadic


@dataclass(frozen=True)
class Operator:
    """An operator of ONNX in an opset.

    Inputs that bear the same name in ``variables`` have the same type, those beyond them the one that ``further``
    names; None stands for a type of their own. ``attributes`` gives the type of each.
    """

    schema: onnx.defs.OpSchema
    variables: tuple[str | None, ...]
    further: str | None
    attributes: Mapping[str, ir.AttributeType]

    @classmethod
    @functools.cache
    def of(cls, op_type: str, opset: int) -> Operator:
        """Raises LoweringError where the opset has no such operator."""
        try:
            schema = onnx.defs.get_schema(op_type, opset, "")
        except onnx.defs.SchemaError:
            raise LoweringError(f"ONNX has no operator {op_type} in opset {opset}") from None
        inputs = list(schema.inputs)
        rest = inputs.pop() if inputs and inputs[-1].option == _VARIADIC else None
        return cls(
            schema,
            tuple(map(_variable, inputs)),
            _variable(rest) if rest and rest.is_homogeneous else None,
            {name: ir.AttributeType(each.type) for name, each in schema.attributes.items()},  # type: ignore[arg-type]
        )

    def dtypes(self, inputs: Sequence[Any]) -> list[ir.DataType | None]:
        """For each input the dtype of the first value among them that has the same type; None where none has."""
        variables = [*self.variables, *[self.further] * len(inputs)][: len(inputs)]
        dtypes: dict[str | None, ir.DataType | None] = {}
        for variable, x in zip(variables, inputs, strict=True):
            if variable is not None and isinstance(x, ir.Value):
                dtypes.setdefault(variable, x.dtype)
        return [dtypes.get(variable) for variable in variables]

    def attributes_of(self, given: Mapping[str, Any]) -> list[ir.Attr]:
        """Python values as attributes, in the order of the schema.

        Raises TypeError for a name that is none of an attribute.
        """
        unknown = given.keys() - self.attributes
        if unknown:
            raise TypeError(f"{self.schema.name} has no attribute {', '.join(sorted(unknown))}")
        types = self.attributes.items()
        return [ir.convenience.convert_attribute(name, given[name], kind) for name, kind in types if name in given]


def _variable(parameter: onnx.defs.OpSchema.FormalParameter) -> str | None:
    """The variable that stands for the type of an input: ``T``, but not ``tensor(int64)``."""
    return None if "(" in parameter.type_str else parameter.type_str
