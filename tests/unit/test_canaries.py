"""Gradual retry of the dead letters of a failure: one, then ten, then all."""

import pytest
from headway_decisions.retries.canaries import (
    AT_ONCE,
    Finished,
    RetryNext,
    Stopped,
    Wait,
    judge,
)
from hypothesis import given
from hypothesis import strategies as st

FATES = ("under_way", "completed", "came_back", "failed_otherwise", "ended")


def fates(*steps: dict[str, int]) -> list[dict[str, int]]:
    """Return letters by result in each step, including steps that have not begun."""
    return [*steps, {}, {}, {}][:3]


NEXT = [
    (0, fates(), True, RetryNext, "step 1 of 3: 1 letter"),
    (0, fates({"under_way": 1}), True, Wait, "1 letter of this step under way"),
    (0, fates({"completed": 1}), True, RetryNext, "step 2 of 3: 10 letters"),
    (0, fates({"came_back": 1}), True, Stopped, "returned for 1 letter of 1 retried"),
    (0, fates({"failed_otherwise": 1}), True, Stopped, "nothing of this step (1 letter)"),
    (0, fates({"ended": 1}), True, Stopped, "nothing of this step (1 letter)"),
    (0, fates({"completed": 1}), False, Finished, "all 1 letter settled, 1 completed"),
    (0, fates(), False, Finished, "no open dead letter of this failure"),
    (1, fates({"completed": 1}, {"completed": 9, "under_way": 1}), True, Wait, "1 letter"),
    (1, fates({"completed": 1}, {"completed": 4}), True, RetryNext, "step 2 of 3: 6 letters"),
    (1, fates({"completed": 1}, {"completed": 9, "came_back": 1}), True, Stopped, "of 11"),
    (1, fates({"completed": 1}, {"completed": 10}), True, RetryNext, "all remaining letters"),
    (
        1,
        fates({"completed": 1}, {"failed_otherwise": 10}),
        True,
        Stopped,
        "nothing of this step (10 letters)",
    ),
    (1, fates({"completed": 1}, {"completed": 1, "ended": 9}), True, RetryNext, "all remaining"),
    (
        2,
        fates({"completed": 1}, {"completed": 10}, {"under_way": 100}),
        True,
        Wait,
        "100 letters",
    ),
    (2, fates({"completed": 1}, {"completed": 10}, {"completed": 3}), False, Finished, "all 14"),
]


@pytest.mark.parametrize(("step", "done", "more", "kind", "words"), NEXT)
def test_the_next_step(step, done, more, kind, words):
    verdict = judge(step, done, more=more)
    assert isinstance(verdict, kind), verdict
    assert words in verdict.reason


def test_the_last_step_limits_letters_under_way():
    before = ({"completed": 1}, {"completed": 10})
    verdict = judge(2, fates(*before, {"under_way": 60, "completed": 200}), more=True)
    assert isinstance(verdict, RetryNext)
    assert verdict.letters == AT_ONCE - 60


@given(
    st.integers(0, 2),
    st.lists(st.dictionaries(st.sampled_from(FATES), st.integers(1, 9)), min_size=3, max_size=3),
    st.booleans(),
)
def test_it_stops_once_the_failure_returned(step, done, more):
    verdict = judge(step, done, more=more)
    if any("came_back" in counts for counts in done):
        assert isinstance(verdict, Stopped)
    if isinstance(verdict, RetryNext):
        assert more
        assert verdict.letters > 0
        assert verdict.step in (step, step + 1)
