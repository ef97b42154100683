"""How dead letters of one failure are retried with care: one, then ten, then all.

A step is over when all that it retried has settled. It went well if something completed and the
failure did not come back; only then does the next step begin. As soon as the failure comes back
everything stops, whatever is still under way. What ended in another failure does not stop a step
in which something completed: it is told, and stands among the dead letters again.

Of the last step only so many are under way at once, so that there is still something to stop.
"""

from collections.abc import Sequence
from typing import Literal
from uuid import UUID

from msgspec import Struct

# How many each step retries; none means all that are left.
STEPS: tuple[int | None, ...] = (1, 10, None)
# How many of the last step may be under way at once, and are asked for at once.
AT_ONCE = 100

Fate = Literal["under_way", "completed", "came_back", "failed_otherwise", "ended"]


class Retried(Struct, frozen=True, kw_only=True):
    """A letter that was retried, and what became of it.

    `ended` is work that ended without an answer to whether the failure is gone: it was cancelled,
    or it expired.
    """

    letter: UUID
    step: int
    fate: Fate


class Standing(Struct, frozen=True, kw_only=True):
    """How a canary stands: in which step it is, and whether there are letters left to retry."""

    step: int
    retried: tuple[Retried, ...] = ()
    more: bool = True


class RetryNext(Struct, frozen=True, kw_only=True):
    """Retry so many more, as part of this step."""

    step: int
    letters: int
    reason: str


class Wait(Struct, frozen=True, kw_only=True):
    """Look again later."""

    reason: str


class Stopped(Struct, frozen=True, kw_only=True):
    """It goes no further."""

    reason: str


class Finished(Struct, frozen=True, kw_only=True):
    """Everything was retried, and has settled."""

    reason: str


Verdict = RetryNext | Wait | Stopped | Finished


def judge(standing: Standing) -> Verdict:
    """What to do next."""
    back = _count(standing.retried, "came_back")
    if back:
        return Stopped(
            reason=f"the same failure came back for {_letters(back)} of "
            f"{len(standing.retried)} retried"
        )
    of_step = [one for one in standing.retried if one.step == standing.step]
    under_way = _count(of_step, "under_way")
    wanted = _wanted(standing, len(of_step), under_way)
    if wanted and standing.more:
        return RetryNext(step=standing.step, letters=wanted, reason=_why(standing.step, wanted))
    if under_way:
        return Wait(reason=f"{_letters(under_way)} of this step under way")
    return _after_step(standing, of_step)


def _after_step(standing: Standing, of_step: Sequence[Retried]) -> Verdict:
    """All of the step has settled, and the failure has not come back."""
    if not standing.retried:
        return Finished(reason="no dead letter of this failure awaits anybody")
    completed = _count(of_step, "completed")
    if of_step and not completed:
        return Stopped(
            reason=f"nothing of this step ({_letters(len(of_step))}) completed: "
            "it failed otherwise, or was ended"
        )
    following = standing.step + 1
    if not standing.more or following >= len(STEPS):
        total = _count(standing.retried, "completed")
        return Finished(reason=f"all {_letters(len(standing.retried))} settled, {total} completed")
    letters = STEPS[following] or AT_ONCE
    return RetryNext(step=following, letters=letters, reason=_why(following, letters))


def _wanted(standing: Standing, asked: int, under_way: int) -> int:
    """How many more this step may retry now."""
    size = STEPS[standing.step]
    return max(0, (AT_ONCE - under_way) if size is None else (size - asked))


def _why(step: int, letters: int) -> str:
    if STEPS[step] is None:
        return f"the steps before went well: all that are left, {letters} at once"
    return f"step {step + 1} of {len(STEPS)}: {_letters(letters)}"


def _count(retried: Sequence[Retried], fate: Fate) -> int:
    return sum(one.fate == fate for one in retried)


def _letters(number: int) -> str:
    return f"{number} letter" if number == 1 else f"{number} letters"
