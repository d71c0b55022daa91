"""The fewest candidates for which a growing condition holds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dort_compare.measure.half.fewest import fewest


@given(st.integers(1, 40), st.lists(st.sets(st.integers(0, 39), min_size=1, max_size=4), min_size=1, max_size=3))
def test_none_of_the_result_can_be_spared(count, causes):
    """Any one of several sets suffices; the result is one of them, with nothing beside it."""
    causes = [cause for cause in causes if max(cause) < count] or [{0}]

    def holds(some):
        return any(cause <= set(some) for cause in causes)

    found = fewest(range(count), holds)
    assert holds(found)
    assert not any(holds([each for each in found if each != spared]) for spared in found)


def test_nothing_is_needed_where_it_holds_already():
    assert fewest("abc", lambda some: True) == []


def test_few_of_many_are_found_with_few_questions():
    asked = []

    def holds(some):
        asked.append(some)
        return {17, 400} <= set(some)

    assert fewest(range(512), holds) == [17, 400]
    assert len(asked) <= 40
