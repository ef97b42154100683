"""Decide what follows a failed run, and a notification that its receiver did not accept."""

import sys
from datetime import datetime, timedelta

from headway_contract.lifecycle import (
    HANDED_BACK,
    LOST_CONTACT,
    ORPHANED,
    RECALLED,
    UNBEGUN,
    UNDELIVERED,
    WORKER_STOPPED,
    Failure,
)
from headway_contract.work import RetryPolicy
from msgspec import Struct

# Failures of the system, to which no retry policy applies.
UNCOUNTED = frozenset({WORKER_STOPPED, UNDELIVERED, LOST_CONTACT, RECALLED, UNBEGUN, HANDED_BACK})
# Uncounted runs in a round; later failures count.
UNCOUNTED_LIMIT = 20
_LONGEST_UNCOUNTED_WAIT = timedelta(minutes=1)
# One of these runs may have killed its worker, or others of its lease were slow: each is retried in
# a lease of its own.
_RETRIED_ALONE = frozenset({ORPHANED, UNBEGUN, HANDED_BACK})


class Retry(Struct, frozen=True, kw_only=True):
    """Run again, not before `at`; `exclusive_lease` means in a lease of its own."""

    at: datetime
    attempts: int
    reason: str
    exclusive_lease: bool = False


class DeadLetter(Struct, frozen=True, kw_only=True):
    """The work needs attention."""

    attempts: int
    reason: str


def after_failure(
    policy: RetryPolicy,
    failure: Failure,
    *,
    attempts: int,
    uncounted: int = 0,
    now: datetime,
    chance: float,
) -> Retry | DeadLetter:
    """Judge a failure after `attempts` counted and `uncounted` runs; `chance` is in [0, 1)."""
    exclusive_lease = failure.kind in _RETRIED_ALONE
    if failure.kind in UNCOUNTED and uncounted < UNCOUNTED_LIMIT:
        # No wait for the first time (a deployment), then a second, doubled each time.
        wait = timedelta(seconds=2 ** min(uncounted - 1, 6) if uncounted else 0)
        at = now + min(wait, _LONGEST_UNCOUNTED_WAIT)
        return Retry(at=at, attempts=attempts, reason=failure.kind, exclusive_lease=exclusive_lease)
    attempts += 1
    if not failure.retryable:
        return DeadLetter(attempts=attempts, reason="not_retryable")
    if not _may_retry(policy, failure):
        return DeadLetter(attempts=attempts, reason="kind_not_retried")
    if attempts >= policy.attempts:
        return DeadLetter(attempts=attempts, reason="attempts_exhausted")
    wait = timedelta(0) if failure.kind == ORPHANED else _wait(policy, attempts, chance)
    return Retry(at=now + wait, attempts=attempts, reason="retry", exclusive_lease=exclusive_lease)


def _may_retry(policy: RetryPolicy, failure: Failure) -> bool:
    kinds = {failure.kind, *failure.kinds}
    if kinds & set(policy.abort_on):
        return False
    # No `retry_on` names failures of the system, so they are retried unless `abort_on` names them.
    ours = failure.kind == ORPHANED or failure.kind in UNCOUNTED
    return not policy.retry_on or ours or bool(kinds & set(policy.retry_on))


def _wait(policy: RetryPolicy, attempts: int, chance: float) -> timedelta:
    # More than 64 doublings only overflow; steep growth overflows even sooner.
    try:
        growth = policy.backoff ** min(attempts - 1, 64)
    except OverflowError:
        growth = sys.float_info.max
    longest = max(policy.interval_seconds, policy.max_interval_seconds)
    seconds = min(policy.interval_seconds * growth, longest)
    return timedelta(seconds=seconds * (1 + policy.jitter * chance))


# The longest pause between attempts to notify.
LONGEST_PAUSE = 3600.0


def after_failed_notification(
    *,
    attempts: int,
    created_at: datetime,
    now: datetime,
    first_pause: float,
    horizon: float,
    spread: float,
) -> datetime | None:
    """Return when to send a failed notification again; `None` if its horizon is over by then."""
    # Sixty doublings reach the longest pause without an overflow. `spread`, from 0 to 1, adds up
    # to a tenth.
    pause = min(first_pause * 2.0 ** min(attempts - 1, 60), LONGEST_PAUSE) * (1 + spread / 10)
    at = now + timedelta(seconds=pause)
    return at if at <= created_at + timedelta(seconds=horizon) else None
