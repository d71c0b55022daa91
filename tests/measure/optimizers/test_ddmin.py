"""The smallest part of a set that holds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dort_compare.measure.optimizers.ddmin import smallest

ITEMS = list(range(9))
SETS = st.lists(st.frozensets(st.sampled_from(ITEMS)), min_size=1, max_size=4)


@given(SETS)
def test_what_is_found_holds_and_nothing_of_it_can_go(enough):
    """A part holds where it has all of one of the sets."""

    def holds(part):
        return any(each <= set(part) for each in enough)

    found = smallest(ITEMS, holds)
    assert holds(found)
    assert not any(holds([item for item in found if item != gone]) for gone in found)


@given(st.frozensets(st.sampled_from(ITEMS)))
def test_all_of_several_are_found(needed):
    assert smallest(ITEMS, lambda part: needed <= set(part)) == sorted(needed)


def test_one_of_many_is_found_in_few_steps():
    asked = []
    assert smallest(range(64), lambda part: asked.append(part) or 41 in part) == [41]
    assert len(asked) < 20


def test_of_two_that_do_the_first_is_taken():
    assert smallest(["late", "early"], bool) == ["late"]
