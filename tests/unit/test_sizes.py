"""Events of workers, cut to the stored size."""

from datetime import UTC, datetime
from uuid import UUID

import pytest
from headway_contract import event
from headway_contract.fields import OUTPUT_LIMIT
from headway_contract.lifecycle import (
    CompletedRun,
    Failure,
    LeaseClaimed,
    LeaseRenewed,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunsCompleted,
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
    assert [*bound_event(event_of(data), LARGE)] == [event_of(data)]


def test_an_output_is_measured_only_where_the_message_is_large():
    largest = RunCompleted(**RIGHTS, run=LEASE, output="x" * (OUTPUT_LIMIT - 2))
    assert [*bound_event(event_of(largest), LARGE)] == [event_of(largest)]
    larger = RunCompleted(**RIGHTS, run=LEASE, output="x" * (OUTPUT_LIMIT - 1))
    [failed] = bound_event(event_of(larger), LARGE)
    assert failed.type == RunFailed.type
    assert failed.id == "1"
    assert failed.data.failure.kind == "output_too_large"
    assert not failed.data.failure.retryable
    assert str(OUTPUT_LIMIT) in failed.data.failure.message


def test_runs_of_a_packed_event_whose_output_is_too_large_fail_alone():
    began = datetime(2027, 1, 1, tzinfo=UTC)
    small, large = (
        CompletedRun(run=UUID(int=n), started_at=began, seconds=0.1, output="x" * size)
        for n, size in enumerate((10, OUTPUT_LIMIT))
    )
    packed = RunsCompleted(**RIGHTS, runs=[small, large])
    assert [*bound_event(event_of(packed), 100)] == [event_of(packed)]
    kept, failed = bound_event(event_of(packed), LARGE)
    assert (kept.id, kept.data.runs) == ("1", [small])
    assert (failed.id, failed.type) == (f"1.{large.run}", RunFailed.type)
    assert (failed.data.run, failed.data.failure.kind) == (large.run, "output_too_large")


def test_long_texts_are_cut():
    [claimed] = bound_event(event_of(LeaseClaimed(**RIGHTS, host="h" * 999)), 999)
    assert len(claimed.data.host) == 255
    [cancelled] = bound_event(event_of(RunCancelled(**RIGHTS, run=LEASE, reason="r" * 9999)), 9999)
    assert len(cancelled.data.reason) == 4096
