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
    policy: RetryPolicy, failure: Failure, *, attempts: int, now: datetime, chance: float
) -> Retry | DeadLetter:
    """Judge one failure; `attempts` were counted before it, `chance` lies in [0, 1)."""
    alone = failure.kind in _SUSPECT
    if failure.kind in UNCOUNTED:
        return Retry(at=now, attempts=attempts, reason=failure.kind, alone=alone)
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

    An orphan's body told nothing that could be on a list, so only being named to abort on
    keeps it from another attempt.
    """
    kinds = {failure.kind, *failure.kinds}
    if kinds & set(policy.abort_on):
        return False
    return not policy.retry_on or failure.kind == ORPHANED or bool(kinds & set(policy.retry_on))


def _wait(policy: RetryPolicy, attempts: int, chance: float) -> timedelta:
    # Whoever waits the longest after 64 attempts does so after the rest of them, too; more
    # would only overflow, as steep growth does even sooner.
    try:
        growth = policy.backoff ** min(attempts - 1, 64)
    except OverflowError:
        growth = sys.float_info.max
    seconds = min(policy.interval_seconds * growth, policy.max_interval_seconds)
    return timedelta(seconds=seconds * (1 + policy.jitter * chance))
