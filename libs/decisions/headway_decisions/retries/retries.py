"""What follows a failed run: another attempt, or a dead letter."""

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

# Trouble of ours, which no policy of the job decides about.
UNCOUNTED = frozenset({WORKER_STOPPED, UNDELIVERED, LOST_CONTACT, RECALLED, UNBEGUN})
# How many runs of a round may go uncounted. Whatever fails beyond them counts.
UNCOUNTED_LIMIT = 20
_LONGEST_UNCOUNTED_WAIT = timedelta(minutes=1)
# One of these runs may have taken its worker down, and it is not known which: they come back
# one to a lease, where that shows.
_SUSPECT = frozenset({ORPHANED, UNBEGUN})


class Retry(Struct, frozen=True, kw_only=True):
    """Run again, not before `at`; `attempts` is how many are counted by now.

    What is to run `alone` shares its lease with nobody.
    """

    at: datetime
    attempts: int
    reason: str
    alone: bool = False


class DeadLetter(Struct, frozen=True, kw_only=True):
    """A person has to look at it."""

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
    """Judge one failure; `chance` lies in [0, 1).

    `attempts` runs of the round were counted before it, and `uncounted` were not.
    """
    alone = failure.kind in _SUSPECT
    if failure.kind in UNCOUNTED and uncounted < UNCOUNTED_LIMIT:
        at = now + _uncounted_wait(uncounted)
        return Retry(at=at, attempts=attempts, reason=failure.kind, alone=alone)
    attempts += 1
    if not failure.retryable:
        return DeadLetter(attempts=attempts, reason="not_retryable")
    if not _may_retry(policy, failure):
        return DeadLetter(attempts=attempts, reason="kind_not_retried")
    if attempts >= policy.attempts:
        return DeadLetter(attempts=attempts, reason="attempts_exhausted")
    wait = timedelta(0) if failure.kind == ORPHANED else _wait(policy, attempts, chance)
    return Retry(at=now + wait, attempts=attempts, reason="retry", alone=alone)


def _may_retry(policy: RetryPolicy, failure: Failure) -> bool:
    """Whether the policy retries this kind of failure.

    A body that was lost or handed back told nothing that could be on a list, so only being named
    to abort on keeps it from another attempt.
    """
    kinds = {failure.kind, *failure.kinds}
    if kinds & set(policy.abort_on):
        return False
    ours = failure.kind == ORPHANED or failure.kind in UNCOUNTED
    return not policy.retry_on or ours or bool(kinds & set(policy.retry_on))


def _uncounted_wait(uncounted: int) -> timedelta:
    """At once the first time, as a deployment wants it, then a second, doubled each time."""
    if uncounted == 0:
        return timedelta(0)
    return min(timedelta(seconds=2 ** min(uncounted - 1, 6)), _LONGEST_UNCOUNTED_WAIT)


def _wait(policy: RetryPolicy, attempts: int, chance: float) -> timedelta:
    # Whoever waits the longest after 64 attempts does so after the rest of them, too; more
    # would only overflow, as steep growth does even sooner.
    try:
        growth = policy.backoff ** min(attempts - 1, 64)
    except OverflowError:
        growth = sys.float_info.max
    longest = max(policy.interval_seconds, policy.max_interval_seconds)
    seconds = min(policy.interval_seconds * growth, longest)
    return timedelta(seconds=seconds * (1 + policy.jitter * chance))


# A receiver that is down for long is tried again at least this often.
LONGEST_PAUSE = 3600.0


class SendAgain(Struct, frozen=True):
    """The notification is sent again at this time."""

    at: datetime


class GiveUp(Struct, frozen=True):
    """The notification is not sent again: its horizon lies before the next attempt."""


def after_failed_notification(
    *,
    attempts: int,
    created_at: datetime,
    now: datetime,
    first_pause: float,
    horizon: float,
    spread: float,
) -> SendAgain | GiveUp:
    """Decide about a notification whose latest of some attempts has failed; times in seconds.

    Pauses double from the first one to an hour. `spread`, from 0 to 1, lengthens a pause by up to
    a tenth of it, so that many do not come back together.
    """
    # Beyond sixty doublings the longest pause holds anyhow, and no float overflows.
    pause = min(first_pause * 2.0 ** min(attempts - 1, 60), LONGEST_PAUSE) * (1 + spread / 10)
    at = now + timedelta(seconds=pause)
    return SendAgain(at) if at <= created_at + timedelta(seconds=horizon) else GiveUp()
