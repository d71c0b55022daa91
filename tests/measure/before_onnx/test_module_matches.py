"""Which value of the graphs settles a suspect, and which does not."""

from __future__ import annotations

import math

import torch
from torch import Tensor, fx

from dort_compare.align.sightings import Sighting
from dort_compare.measure.before_onnx.module_matches import Matches
from dort_compare.measure.noise.scatter import Scatter
from dort_compare.trace.eager_modules import EagerValue
from dort_compare.trace.module_calls import ModuleCall, Place

CALL = ModuleCall("block", 0)
PLACE = Place("output", CALL, "")
RIGHT = torch.arange(6.0).reshape(2, 3)


def suspicious(value: Tensor) -> Matches:
    """What holds ``value`` against eager's at one place."""
    matches = Matches({PLACE: EagerValue(RIGHT)}, None)
    matches.see(Sighting("output", CALL, value, ""))
    assert set(matches.suspects) == {PLACE}
    return matches


def test_an_equal_value_settles_the_suspects_of_its_own_modules_alone() -> None:
    matches, node = suspicious(RIGHT + 1), fx.Graph().placeholder("x")
    matches.settle_within([None, "other", "block.inner"], node, RIGHT.flatten())
    assert matches.suspects
    for value in (RIGHT + 1, RIGHT.double(), RIGHT[:1]):
        matches.settle_within(["block"], node, value)
    assert matches.suspects
    matches.settle_within(["block"], node, RIGHT.flatten())
    assert not matches.suspects
    assert matches.found[PLACE].node is node


def test_a_suspect_that_right_values_scatter_as_far_as_is_settled() -> None:
    matches = suspicious(RIGHT + 1)
    matches.settle({PLACE: Scatter(0.8, choices=math.inf)})
    assert matches.suspects
    matches.settle({PLACE: Scatter(1.2, choices=math.inf)})
    assert not matches.suspects
