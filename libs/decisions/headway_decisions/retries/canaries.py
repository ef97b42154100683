"""Decide the next step of a canary: dead letters of one failure, retried 1, then 10, then all.

A step is over when everything that it retried has settled. The next one begins if something of it
completed. As soon as the failure returns, the canary stops. Other failures are only counted. The
last step keeps at most `AT_ONCE` letters under way, so that a stop still has an effect.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from headway_decisions.wording import counted

# The number of letters that each step retries; `None` means all remaining letters.
STEPS: tuple[int | None, ...] = (1, 10, None)
AT_ONCE = 100

# `ended` is work that was cancelled or expired: it does not show whether the failure is gone.
Fate = Literal["under_way", "completed", "came_back", "failed_otherwise", "ended"]
Fates = Mapping[str, int]


class _Verdict(Struct, frozen=True, kw_only=True):
    reason: str


class RetryNext(_Verdict, frozen=True, kw_only=True):
    """Retry more letters as part of this step."""

    step: int
    letters: int


class Wait(_Verdict, frozen=True):
    """Check again later."""


class Stopped(_Verdict, frozen=True):
    """Retry nothing more."""


class Finished(_Verdict, frozen=True):
    """Every letter was retried and has settled."""


Verdict = RetryNext | Wait | Stopped | Finished


def judge(step: int, fates: Sequence[Fates], *, more: bool) -> Verdict:
    """Decide how a canary continues; `fates` has one entry per step."""
    retried = sum(sum(counts.values()) for counts in fates)
    returned = _total(fates, "came_back")
    if returned:
        return Stopped(
            reason=f"the same failure returned for {counted(returned, 'letter')} of "
            f"{retried} retried"
        )
    current = fates[step]
    under_way = current.get("under_way", 0)
    size = STEPS[step]
    wanted = AT_ONCE - under_way if size is None else size - sum(current.values())
    if wanted > 0 and more:
        return RetryNext(step=step, letters=wanted, reason=_reason(step, wanted))
    if under_way:
        return Wait(reason=f"{counted(under_way, 'letter')} of this step under way")
    if not retried:
        return Finished(reason="no open dead letter of this failure")
    if current and not current.get("completed"):
        return Stopped(
            reason=f"nothing of this step ({counted(sum(current.values()), 'letter')}) completed: "
            "it failed in another way, or was cancelled"
        )
    if not more or step + 1 >= len(STEPS):
        completed = _total(fates, "completed")
        return Finished(reason=f"all {counted(retried, 'letter')} settled, {completed} completed")
    letters = STEPS[step + 1] or AT_ONCE
    return RetryNext(step=step + 1, letters=letters, reason=_reason(step + 1, letters))


def _reason(step: int, letters: int) -> str:
    if STEPS[step] is None:
        return f"earlier steps succeeded: all remaining letters, {letters} at once"
    return f"step {step + 1} of {len(STEPS)}: {counted(letters, 'letter')}"


def _total(fates: Sequence[Fates], fate: Fate) -> int:
    return sum(counts.get(fate, 0) for counts in fates)
