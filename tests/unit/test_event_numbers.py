"""Following history: numbers may appear out of order, or never."""

import pytest
from headway_console.reading.events import type_pattern
from headway_history.store import PATIENCE_SECONDS, Numbers
from hypothesis import given
from hypothesis import strategies as st


def test_late_numbers_are_not_missed():
    numbers = Numbers(10)
    assert numbers.news([11, 13], 0.0) == [11, 13]
    assert numbers.settled == 11
    assert numbers.news([12, 13], 1.0) == [12]
    assert numbers.settled == 13


def test_rolled_back_numbers_are_given_up():
    numbers = Numbers(0)
    assert numbers.news([2], 0.0) == [2]
    assert numbers.news([2], PATIENCE_SECONDS - 1) == []
    assert numbers.settled == 0
    assert numbers.news([2, 3], PATIENCE_SECONDS) == [3]
    assert numbers.settled == 3


@given(st.permutations(range(1, 30)), st.data())
def test_each_number_is_reported_once_in_any_order(order, data):
    numbers, visible, seen = Numbers(0), set(), []
    while order:
        some = data.draw(st.integers(1, len(order)))
        visible |= set(order[:some])
        order = order[some:]
        seen += numbers.news(sorted(number for number in visible if number > numbers.settled), 0.0)
    assert sorted(seen) == sorted(visible)
    assert numbers.settled == 29


@pytest.mark.parametrize(
    ("given_", "pattern"),
    [
        ("run.completed", "headway.run.completed.v%"),
        ("run.*", "headway.run.%.v%"),
        ("dead_letter.created", r"headway.dead\_letter.created.v%"),
        ("headway.work.queued.v1", "headway.work.queued.v1"),
    ],
)
def test_types_as_people_write_them(given_, pattern):
    assert type_pattern(given_) == pattern
