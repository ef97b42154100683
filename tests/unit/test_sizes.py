"""Events of workers, cut to the stored size."""

from datetime import UTC, datetime
from uuid import UUID

import pytest
from headway_contract import event
from headway_contract.fields import OUTPUT_LIMIT
from headway_contract.lifecycle import (
    Failure,
    LeaseClaimed,
    LeaseRenewed,
    RunCancelled,
    RunCompleted,
    RunFailed,
)
from headway_decisions.runs.report_limits import bound_event

LEASE = UUID("01930000-0000-7000-8000-000000000003")
RIGHTS = {"lease": LEASE, "token": "t", "nonce": "n"}
LARGE = OUTPUT_LIMIT + 1000


def event_of(data):
    return event(
        data, id="1", source="worker/w", subject="x", time=datetime(2027, 1, 1, tzinfo=UTC)
    )


@pytest.mark.parametrize(
    "data",
    [
        RunCompleted(**RIGHTS, run=LEASE, output={"a": 1}),
        RunFailed(**RIGHTS, run=LEASE, failure=Failure(kind="E", kinds=["F"], message="m")),
        RunCancelled(**RIGHTS, run=LEASE, reason="asked"),
        LeaseClaimed(**RIGHTS, host="here"),
        LeaseRenewed(**RIGHTS),
    ],
)
def test_events_that_fit_are_unchanged(data):
    assert bound_event(event_of(data), LARGE) == event_of(data)


def test_an_output_is_measured_only_where_the_message_is_large():
    largest = RunCompleted(**RIGHTS, run=LEASE, output="x" * (OUTPUT_LIMIT - 2))
    assert bound_event(event_of(largest), LARGE) == event_of(largest)
    larger = RunCompleted(**RIGHTS, run=LEASE, output="x" * (OUTPUT_LIMIT - 1))
    failed = bound_event(event_of(larger), LARGE)
    assert failed.type == RunFailed.type
    assert failed.id == "1"
    assert failed.data.failure.kind == "output_too_large"
    assert not failed.data.failure.retryable
    assert str(OUTPUT_LIMIT) in failed.data.failure.message


def test_long_texts_are_cut():
    assert len(bound_event(event_of(LeaseClaimed(**RIGHTS, host="h" * 999)), 999).data.host) == 255
    cancelled = RunCancelled(**RIGHTS, run=LEASE, reason="r" * 9999)
    assert len(bound_event(event_of(cancelled), 9999).data.reason) == 4096
