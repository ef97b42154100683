"""Rules of dead letters: resolved once, one round at a time in a slot."""

from uuid import UUID, uuid4

import pytest
from headway_decisions.retries import dead_letters
from headway_decisions.retries.dead_letters import (
    Acknowledged,
    Letter,
    Refused,
    RetryNow,
    RetryWaits,
)
from msgspec.structs import replace

MANIFEST, WORK = UUID(int=1), UUID(int=2)
LETTER = Letter(id=UUID(int=3), work=WORK, round=1, state="awaiting", slot=(MANIFEST, 0))


def verdicts(*given: Letter) -> list:
    return [verdict for _, verdict in dead_letters.judge_retries(given)]


def test_a_retry_begins_the_next_round():
    assert verdicts(LETTER) == [RetryNow(round=2)]
    assert verdicts(replace(LETTER, round=4, slot=None)) == [RetryNow(round=5)]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"state": "retried"}, "already_retried"),
        ({"state": "acknowledged"}, "already_acknowledged"),
        ({"retry_requested": True}, "already_asked"),
        ({"job_retired": True}, "job_retired"),
        ({"job_retired": True, "retry_requested": True}, "job_retired"),
        ({"pruned": True}, "pruned"),
        ({"pruned": True, "retry_requested": True}, "pruned"),
        ({"state": "retried", "taken_by": uuid4()}, "already_retried"),
    ],
)
def test_impossible_actions_are_refused(change, why):
    assert verdicts(replace(LETTER, **change)) == [Refused(why=why)]


def test_it_waits_for_the_work_in_its_slot():
    other = uuid4()
    assert verdicts(replace(LETTER, taken_by=other)) == [RetryWaits(taken_by=other)]


def test_the_first_of_a_slot_gets_it():
    second = replace(LETTER, id=uuid4(), work=uuid4())
    elsewhere = replace(LETTER, id=uuid4(), work=uuid4(), slot=(MANIFEST, 1))
    loose = replace(LETTER, id=uuid4(), work=uuid4(), slot=None)
    assert verdicts(LETTER, second, elsewhere, loose, loose) == [
        RetryNow(round=2),
        RetryWaits(taken_by=WORK),
        *[RetryNow(round=2)] * 3,
    ]


def test_a_letter_whose_retry_waits_can_be_put_away():
    requested = replace(LETTER, retry_requested=True, job_retired=True)
    done = replace(LETTER, state="acknowledged")
    pruned = replace(LETTER, pruned=True)
    found = [
        verdict
        for _, verdict in dead_letters.judge_acknowledgements([LETTER, requested, done, pruned])
    ]
    assert found == [
        Acknowledged(),
        Acknowledged(),
        Refused(why="already_acknowledged"),
        Refused(why="pruned"),
    ]
