"""What follows a failed run: another attempt, or a dead letter."""

import sys
from datetime import datetime, timedelta

from headway_contract.lifecycle import ORPHANED, UNDELIVERED, WORKER_STOPPED, Failure
from headway_contract.work import RetryPolicy
from msgspec import Struct

UNCOUNTED = frozenset({WORKER_STOPPED, UNDELIVERED})


class Retry(Struct, frozen=True, kw_only=True):
    """Run again, not before `at`; `attempts` is how many are counted by now."""

    at: datetime
    attempts: int
    reason: str


class DeadLetter(Struct, frozen=True, kw_only=True):
    """A person has to look at it."""

    attempts: int
    reason: str


def after_failure(
    policy: RetryPolicy, failure: Failure, *, attempts: int, now: datetime, chance: float
) -> Retry | DeadLetter:
    """Judge one failure; `attempts` were counted before it, `chance` lies in [0, 1)."""
    if failure.kind in UNCOUNTED:
        return Retry(at=now, attempts=attempts, reason=failure.kind)
    attempts += 1
    if not failure.retryable:
        return DeadLetter(attempts=attempts, reason="not_retryable")
    if attempts >= policy.attempts:
        return DeadLetter(attempts=attempts, reason="attempts_exhausted")
    wait = timedelta(0) if failure.kind == ORPHANED else _wait(policy, attempts, chance)
    return Retry(at=now + wait, attempts=attempts, reason="retry")


def _wait(policy: RetryPolicy, attempts: int, chance: float) -> timedelta:
    # Whoever waits the longest after 64 attempts does so after the rest of them, too; more
    # would only overflow, as steep growth does even sooner.
    try:
        growth = policy.backoff ** min(attempts - 1, 64)
    except OverflowError:
        growth = sys.float_info.max
    seconds = min(policy.interval_seconds * growth, policy.max_interval_seconds)
    return timedelta(seconds=seconds * (1 + policy.jitter * chance))
