"""Expiry of runs that were taken back."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from headway_decisions.runs.folding import Run
from headway_decisions.runs.reaping import expired_before_start

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def taken_back(**fields) -> Run:
    return Run(**{"id": uuid4(), "state": "cancelled", "finished_at": NOON, **fields})


@pytest.mark.parametrize("start_by", [NOON - SECOND, NOON])
def test_work_that_was_not_started_in_time_expires(start_by):
    assert expired_before_start(start_by, taken_back(), cancel_requested=False)


@pytest.mark.parametrize(
    ("start_by", "run", "cancel_requested"),
    [
        (None, taken_back(), False),
        (NOON + SECOND, taken_back(), False),
        (NOON, taken_back(), True),
        (NOON, taken_back(started_at=NOON - SECOND), False),
        (NOON, taken_back(state="completed"), False),
        (NOON, taken_back(state="pending", finished_at=None), False),
    ],
    ids=["no time set", "in time", "somebody asked", "begun", "completed", "live"],
)
def test_anything_else_did_not(start_by, run, cancel_requested):
    assert not expired_before_start(start_by, run, cancel_requested=cancel_requested)
