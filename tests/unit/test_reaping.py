"""Outcomes of the runs of a revoked lease."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from headway_decisions.capacity.slots import Worker
from headway_decisions.runs.reaping import (
    LiveRun,
    Witness,
    endings,
    jobs_that_wait_their_turn,
)

BEGUN, UNBEGUN, OVERDUE = (UUID(int=number) for number in (1, 2, 3))
LIVE = [
    LiveRun(run=BEGUN, begun=True),
    LiveRun(run=UNBEGUN, begun=False),
    LiveRun(run=OVERDUE, begun=True, overdue=True),
]


@pytest.mark.parametrize(
    ("why", "expected"),
    [
        ("orphaned", ["orphaned", "unbegun", "orphaned"]),
        ("undelivered", ["undelivered", "undelivered", "undelivered"]),
        ("timed_out", ["recalled", "recalled", "timed_out"]),
    ],
)
def test_a_shared_lease(why, expected):
    assert endings(why, LIVE, shared=True) == dict(
        zip((BEGUN, UNBEGUN, OVERDUE), expected, strict=True)
    )


@pytest.mark.parametrize("why", ["orphaned", "undelivered", "timed_out"])
@pytest.mark.parametrize("run", LIVE, ids=["begun", "unbegun", "overdue"])
def test_the_only_run_of_a_lease_is_its_own_cause(why, run):
    assert endings(why, [run], shared=False) == {run.run: why}


NOON = datetime(2027, 3, 28, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("since", "last", "trusted"),
    [(-60, 0, True), (-60, -9, True), (-60, -10, False), (-59, 0, False), (-600, -300, False)],
)
def test_silence_counts_only_while_a_dispatcher_listened(since, last, trusted):
    witness = Witness(heard_since=NOON + since * SECOND, last_heard_at=NOON + last * SECOND)
    assert witness.would_have_heard(NOON, throughout=60 * SECOND, gap=9 * SECOND) is trusted


def serving(*jobs: str, slots: int = 1, **fields) -> Worker:
    return Worker(jobs=jobs, slots=slots, **fields)


@pytest.mark.parametrize(
    ("fleet", "expected"),
    [
        ([], set()),
        ([serving("a")], set()),
        ([serving("a", held={"a": 1})], {"a"}),
        ([serving("a", "b", held={"b": 1})], {"a", "b"}),
        ([serving("a", slots=2, held={"a": 1})], set()),
        ([serving("a", held={"a": 1}), serving("a")], set()),
        ([serving("a", held={"a": 1}), serving("b")], {"a"}),
        ([serving("a", "b", slots=9, held={"a": 2}, concurrency={"a": 2})], {"a"}),
        ([serving("a", slots=0)], set()),
        ([serving("a", slots=2, concurrency={"a": 0})], set()),
    ],
    ids=[
        "nobody",
        "idle",
        "busy",
        "busy with another job",
        "a slot is free",
        "another has a free slot",
        "who is idle does not serve it",
        "as many of the job as it runs at once",
        "a worker without slots",
        "a worker that runs none of it",
    ],
)
def test_orders_wait_while_all_workers_of_their_job_are_full(fleet, expected):
    assert jobs_that_wait_their_turn(fleet) == expected
