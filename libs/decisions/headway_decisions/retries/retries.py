"""Decide what follows a failed run, and a notification that its receiver did not accept."""

import sys
from datetime import datetime, timedelta

from headway_contract.lifecycle import (
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
UNCOUNTED = frozenset({WORKER_STOPPED, UNDELIVERED, LOST_CONTACT, RECALLED, UNBEGUN})
# Uncounted runs in a round; later failures count.
UNCOUNTED_LIMIT = 20
_LONGEST_UNCOUNTED_WAIT = timedelta(minutes=1)
# One of these runs may have killed its worker, so each is retried in a lease of its own.
_SUSPECT = frozenset({ORPHANED, UNBEGUN})


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
    """Judge one failure; `chance` is in [0, 1).

    Before it the round had `attempts` counted and `uncounted` uncounted runs.
    """
    exclusive_lease = failure.kind in _SUSPECT
    if failure.kind in UNCOUNTED and uncounted < UNCOUNTED_LIMIT:
        at = now + _uncounted_wait(uncounted)
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
    """Return whether the policy retries this kind of failure.

    Failures of the system are retried unless `abort_on` names them, since no `retry_on` would.
    """
    kinds = {failure.kind, *failure.kinds}
    if kinds & set(policy.abort_on):
        return False
    ours = failure.kind == ORPHANED or failure.kind in UNCOUNTED
    return not policy.retry_on or ours or bool(kinds & set(policy.retry_on))


def _uncounted_wait(uncounted: int) -> timedelta:
    """Return no wait for the first time (a deployment), then a second, doubled each time."""
    if uncounted == 0:
        return timedelta(0)
    return min(timedelta(seconds=2 ** min(uncounted - 1, 6)), _LONGEST_UNCOUNTED_WAIT)


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


class SendAgain(Struct, frozen=True):
    """The notification is sent again at this time."""

    at: datetime


class GiveUp(Struct, frozen=True):
    """The notification is not sent again, because its horizon is over."""


def after_failed_notification(
    *,
    attempts: int,
    created_at: datetime,
    now: datetime,
    first_pause: float,
    horizon: float,
    spread: float,
) -> SendAgain | GiveUp:
    """Judge a failed notification; durations are in seconds.

    Pauses double from the first one to an hour. `spread`, from 0 to 1, adds up to a tenth.
    """
    # Sixty doublings reach the longest pause without an overflow.
    pause = min(first_pause * 2.0 ** min(attempts - 1, 60), LONGEST_PAUSE) * (1 + spread / 10)
    at = now + timedelta(seconds=pause)
    return SendAgain(at) if at <= created_at + timedelta(seconds=horizon) else GiveUp()
