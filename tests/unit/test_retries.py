"""Retries after a failure."""

from datetime import UTC, datetime, timedelta

import pytest
from headway_contract.lifecycle import (
    LOST_CONTACT,
    ORPHANED,
    RECALLED,
    TIMED_OUT,
    UNBEGUN,
    UNDELIVERED,
    WORKER_STOPPED,
    Failure,
)
from headway_contract.work import RetryPolicy
from headway_decisions.retries.retries import UNCOUNTED_LIMIT, DeadLetter, Retry, after_failure

NOW = datetime(2027, 5, 1, tzinfo=UTC)
POLICY = RetryPolicy(
    attempts=3, interval_seconds=10, backoff=2, max_interval_seconds=15, jitter=0.1
)
BROKEN = Failure(kind="ValueError")


def after(failure: Failure, *, attempts: int, chance: float = 0.0, uncounted: int = 0):
    return after_failure(
        POLICY, failure, attempts=attempts, uncounted=uncounted, now=NOW, chance=chance
    )


def test_attempts_count_all_runs_the_first_one_included():
    assert after(BROKEN, attempts=0) == Retry(
        at=NOW + timedelta(seconds=10), attempts=1, reason="retry"
    )
    assert after(BROKEN, attempts=2) == DeadLetter(attempts=3, reason="attempts_exhausted")


def test_one_attempt_means_no_retry():
    verdict = after_failure(RetryPolicy(attempts=1), BROKEN, attempts=0, now=NOW, chance=0.0)
    assert verdict == DeadLetter(attempts=1, reason="attempts_exhausted")


def test_the_wait_grows_up_to_its_limit_and_has_jitter():
    verdict = after(BROKEN, attempts=1, chance=0.5)
    assert isinstance(verdict, Retry)
    assert verdict.at == NOW + timedelta(seconds=15 * 1.05)


def test_the_limit_of_growth_does_not_shorten_the_interval():
    policy = RetryPolicy(attempts=3, interval_seconds=12_600)
    for attempts in (0, 1):
        verdict = after_failure(policy, BROKEN, attempts=attempts, uncounted=0, now=NOW, chance=0)
        assert isinstance(verdict, Retry)
        assert verdict.at == NOW + timedelta(seconds=12_600)


def test_permanent_failures_are_not_retried():
    verdict = after(Failure(kind="Fatal", retryable=False), attempts=0)
    assert verdict == DeadLetter(attempts=1, reason="not_retryable")


@pytest.mark.parametrize("kind", [WORKER_STOPPED, UNDELIVERED, LOST_CONTACT, RECALLED])
def test_failures_outside_of_the_job_are_not_counted(kind):
    assert after(Failure(kind=kind), attempts=2) == Retry(at=NOW, attempts=2, reason=kind)


@pytest.mark.parametrize("kind", [WORKER_STOPPED, UNDELIVERED, LOST_CONTACT, RECALLED, UNBEGUN])
def test_uncounted_retries_back_off_and_count_in_the_end(kind):
    failure, waits, uncounted, attempts = Failure(kind=kind), [], 0, 0
    while isinstance(verdict := after(failure, attempts=attempts, uncounted=uncounted), Retry):
        waits.append((verdict.at - NOW).total_seconds())
        uncounted += verdict.attempts == attempts
        attempts = verdict.attempts
    assert waits[:9] == [0, 1, 2, 4, 8, 16, 32, 60, 60]
    assert uncounted == UNCOUNTED_LIMIT
    assert verdict == DeadLetter(attempts=POLICY.attempts, reason="attempts_exhausted")


def test_an_orphan_is_tried_at_once_and_counted():
    again = Retry(at=NOW, attempts=1, reason="retry", exclusive_lease=True)
    assert after(Failure(kind=ORPHANED), attempts=0) == again
    assert isinstance(after(Failure(kind=ORPHANED), attempts=2), DeadLetter)


def test_a_timeout_is_a_failure_like_any_other():
    late = Failure(kind=TIMED_OUT)
    assert after(late, attempts=0) == after(BROKEN, attempts=0)
    assert after(late, attempts=2) == DeadLetter(attempts=3, reason="attempts_exhausted")
    aborting = RetryPolicy(attempts=3, abort_on=(TIMED_OUT,))
    verdict = after_failure(aborting, late, attempts=0, uncounted=0, now=NOW, chance=0)
    assert verdict == DeadLetter(attempts=1, reason="kind_not_retried")


def test_work_that_may_have_killed_its_worker_is_retried_alone():
    unbegun = after(Failure(kind=UNBEGUN), attempts=2)
    assert unbegun == Retry(at=NOW, attempts=2, reason=UNBEGUN, exclusive_lease=True)
    assert not after(Failure(kind=RECALLED), attempts=0).exclusive_lease
    assert not after(BROKEN, attempts=0).exclusive_lease


REFUSED = Failure(kind="ConnectionRefusedError", kinds=["ConnectionError", "OSError"])


@pytest.mark.parametrize(
    ("lists", "failure", "again"),
    [
        ({}, BROKEN, True),
        ({"retry_on": ("OSError",)}, REFUSED, True),
        ({"retry_on": ("ConnectionRefusedError",)}, REFUSED, True),
        ({"retry_on": ("OSError",)}, BROKEN, False),
        ({"retry_on": ("OSError",)}, Failure(kind=TIMED_OUT), False),
        ({"retry_on": ("OSError", TIMED_OUT)}, Failure(kind=TIMED_OUT), True),
        ({"abort_on": ("ConnectionError",)}, REFUSED, False),
        ({"abort_on": ("ConnectionError",)}, BROKEN, True),
        ({"retry_on": ("OSError",), "abort_on": ("ConnectionError",)}, REFUSED, False),
        ({"retry_on": ("OSError",)}, Failure(kind=ORPHANED), True),
        ({"abort_on": (ORPHANED,)}, Failure(kind=ORPHANED), False),
        ({"retry_on": ("OSError",), "abort_on": (UNDELIVERED,)}, Failure(kind=UNDELIVERED), True),
    ],
)
def test_kinds_that_are_tried_again(lists, failure, again):
    policy = RetryPolicy(attempts=3, **lists)
    verdict = after_failure(policy, failure, attempts=0, uncounted=0, now=NOW, chance=0.0)
    if again:
        assert isinstance(verdict, Retry)
    else:
        assert verdict == DeadLetter(attempts=1, reason="kind_not_retried")


def test_growth_that_no_number_can_hold_stops_at_the_limit():
    steep = RetryPolicy(attempts=200, interval_seconds=1, backoff=1e300, jitter=0)
    verdict = after_failure(steep, BROKEN, attempts=100, uncounted=0, now=NOW, chance=0)
    assert verdict == Retry(at=NOW + timedelta(seconds=3600), attempts=101, reason="retry")
