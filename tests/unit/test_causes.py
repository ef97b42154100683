"""Causes and the ids of their work: deterministic and without collisions."""

from datetime import timedelta

import pytest
from headway_decisions.firing import identity
from hypothesis import given
from hypothesis import strategies as st
from support.judged import MANIFEST, NOON, WORK, noon


def test_the_same_cause_has_the_same_work():
    cause = identity.due_cause(NOON)
    assert cause == "due:2027-05-01T12:00:00Z"
    work = identity.work_id(MANIFEST, cause, NOON)
    assert identity.work_id(MANIFEST, cause, noon(60)) == work
    assert identity.work_id(WORK, cause, NOON) != work
    assert identity.due_cause(NOON.astimezone()) == cause


@pytest.mark.parametrize(
    "cause",
    [
        identity.trigger_cause("k"),
        identity.activation_cause(WORK, "k"),
        identity.repeated_cause(identity.trigger_cause("k")),
    ],
)
def test_a_key_that_is_used_again_has_other_work(cause):
    work = identity.work_id(MANIFEST, cause, NOON)
    assert identity.work_id(MANIFEST, cause, NOON.astimezone()) == work
    assert identity.work_id(MANIFEST, cause, NOON + timedelta(microseconds=1)) != work


@given(key=st.text(), other=st.text(), times=st.integers(1, 12))
def test_no_key_collides_with_a_repeated_cause(key, other, times):
    """A repeated cause never equals a cause from any key, and keeps its kind."""
    for first, wanted in (
        (identity.trigger_cause(key), identity.trigger_cause(other)),
        (identity.activation_cause(WORK, key), identity.activation_cause(WORK, other)),
    ):
        made = [first]
        for _ in range(times):
            made.append(identity.repeated_cause(made[-1]))
        assert len(set(made)) == times + 1
        assert wanted not in made[1:]
        assert len({identity.kind_of(cause) for cause in (wanted, *made)}) == 1


@pytest.mark.parametrize(
    ("cause", "again"),
    [
        ("trigger:k", "trigger+1:k"),
        ("trigger+1:k", "trigger+2:k"),
        ("trigger+9:k", "trigger+10:k"),
        ("trigger:k+1", "trigger+1:k+1"),
        (f"activation:{WORK}:", f"activation+1:{WORK}:"),
        (f"success:{WORK}:3", f"success+1:{WORK}:3"),
    ],
)
def test_a_repeated_cause_counts_its_repetitions(cause, again):
    assert identity.repeated_cause(cause) == again
