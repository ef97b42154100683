"""Retrying dead letters of one failure: one, then ten, then all."""

from uuid import UUID

import pytest
from headway_decisions.retries.canaries import (
    AT_ONCE,
    Finished,
    Retried,
    RetryNext,
    Standing,
    Stopped,
    Wait,
    judge,
)
from hypothesis import given
from hypothesis import strategies as st

FATES = ("under_way", "completed", "came_back", "failed_otherwise", "ended")


def retried(*steps: dict[str, int]) -> tuple[Retried, ...]:
    """So many of each fate in each step."""
    return tuple(
        Retried(letter=UUID(int=step * 10_000 + number), step=step, fate=fate)
        for step, fates in enumerate(steps)
        for fate, many in fates.items()
        for number in range(many)
    )


NEXT = [
    (0, (), True, RetryNext, "step 1 of 3: 1 letter"),
    (0, retried({"under_way": 1}), True, Wait, "1 letter of this step under way"),
    (0, retried({"completed": 1}), True, RetryNext, "step 2 of 3: 10 letters"),
    (0, retried({"came_back": 1}), True, Stopped, "came back for 1 letter of 1 retried"),
    (0, retried({"failed_otherwise": 1}), True, Stopped, "nothing of this step (1 letter)"),
    (0, retried({"ended": 1}), True, Stopped, "nothing of this step (1 letter)"),
    (0, retried({"completed": 1}), False, Finished, "all 1 letter settled, 1 completed"),
    (0, (), False, Finished, "no dead letter of this failure"),
    (1, retried({"completed": 1}, {"completed": 9, "under_way": 1}), True, Wait, "1 letter"),
    (1, retried({"completed": 1}, {"completed": 4}), True, RetryNext, "step 2 of 3: 6 letters"),
    (1, retried({"completed": 1}, {"completed": 9, "came_back": 1}), True, Stopped, "of 11"),
    (1, retried({"completed": 1}, {"completed": 10}), True, RetryNext, "all that are left"),
    (
        1,
        retried({"completed": 1}, {"failed_otherwise": 10}),
        True,
        Stopped,
        "nothing of this step (10 letters)",
    ),
    (1, retried({"completed": 1}, {"completed": 1, "ended": 9}), True, RetryNext, "all that"),
    (
        2,
        retried({"completed": 1}, {"completed": 10}, {"under_way": 100}),
        True,
        Wait,
        "100 letters",
    ),
    (2, retried({"completed": 1}, {"completed": 10}, {"completed": 3}), False, Finished, "all 14"),
]


@pytest.mark.parametrize(("step", "done", "more", "kind", "words"), NEXT)
def test_what_comes_next(step, done, more, kind, words):
    verdict = judge(Standing(step=step, retried=done, more=more))
    assert isinstance(verdict, kind), verdict
    assert words in verdict.reason


def test_the_last_step_keeps_only_so_many_under_way():
    before = ({"completed": 1}, {"completed": 10})
    some = judge(Standing(step=2, retried=retried(*before, {"under_way": 60, "completed": 200})))
    assert isinstance(some, RetryNext)
    assert some.letters == AT_ONCE - 60


@given(
    st.integers(0, 2),
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from(FATES)), max_size=30),
    st.booleans(),
)
def test_it_never_goes_on_once_the_failure_is_back(step, told, more):
    done = tuple(
        Retried(letter=UUID(int=number), step=at, fate=fate)
        for number, (at, fate) in enumerate(told)
    )
    verdict = judge(Standing(step=step, retried=done, more=more))
    if any(fate == "came_back" for _, fate in told):
        assert isinstance(verdict, Stopped)
    if isinstance(verdict, RetryNext):
        assert more
        assert verdict.letters > 0
        assert verdict.step in (step, step + 1)
