"""What a comparison is to spend its time on."""

from __future__ import annotations

from dataclasses import dataclass

from dort_compare.errors import UsageError
from dort_compare.trace.four_executions import MEMORY


@dataclass(frozen=True)
class Effort:
    """What a comparison is to spend its time on.

    ``memory`` bounds the MiB of torch's values that are compared at a time, ``repeats`` says how often ONNX Runtime
    computes each value on the same operands: one that changes from run to run is named before anything else.
    ``optimized`` compares the values that survive ONNX Runtime's optimizers too, as they come out then. Without it that
    is done only for graphs of which a result departs although none of their ops does.
    ``suggest_fp32`` searches for the few nodes that, kept in float32, bring outputs and gradients back inside their
    floor (True) or within a relative error of norms (a number).

    Raises UsageError for what makes no sense.
    """

    memory: int = MEMORY
    repeats: int = 1
    optimized: bool = False
    suggest_fp32: bool | float = False

    def __post_init__(self) -> None:
        for name, number in (("memory", self.memory), ("repeats", self.repeats)):
            if type(number) is not int or number < 1:
                raise UsageError(f"{name} is {number!r}; give a whole number, at least 1")
        if not isinstance(self.optimized, bool):
            raise UsageError(f"optimized is {self.optimized!r}; give True or False")
        target = self.suggest_fp32
        if not isinstance(target, bool) and not (isinstance(target, float) and 0 < target < 1):
            raise UsageError(f"suggest_fp32 is {target!r}; give True, or a relative error between 0 and 1")


USUAL = Effort()
"""What a comparison spends unless it is told otherwise."""
