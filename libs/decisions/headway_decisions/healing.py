"""What to make of a broker that may have forgotten, and of answers about lost messages.

The scheduler does not keep at which sequence each message was stored: that would be a write
for every piece of work. It keeps a *mark* instead: the stream's last sequence at a moment
when everything that had been decided before was published. What was told before the mark is
stored at or below its sequence, if it is stored at all. So once the consumer has passed the
mark, or the stream turns out to be another one, whatever was told before the mark and is not
known to the receiver is lost. Until then it may still be waiting there, and telling it again
would only make the backlog longer. A stream that went back behind the mark says nothing yet:
it may still hold the older part of what was told. It gets a new mark, at its present end.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

from headway_contract.healing import AskedWork, ReconcileAnswer
from headway_contract.settled import WorkSettled
from msgspec import Struct

# How far a mark has come: still ahead of the consumer, passed by it, or out of date because
# the stream was made anew or its storage went back in time.
Reach = Literal["waiting", "passed", "new_stream", "rolled_back"]

LONGEST_PAUSE = timedelta(hours=1)

# Why work that the dispatcher does not know is settled without having been seen to.
FORGOTTEN = "the dispatcher keeps no record that old: nobody knows how it ended"


class Mark(Struct, frozen=True, kw_only=True):
    """Where a stream ended when all that was decided before `taken_at` had been published."""

    created: str
    sequence: int
    taken_at: datetime


class Sight(Struct, frozen=True, kw_only=True):
    """A stream as it was seen: which one, where it ends, and up to where it is consumed."""

    created: str
    last_sequence: int
    done_through: int = 0


class Settled(Struct, frozen=True):
    """It came to its end, and the outcome was not heard."""

    end: WorkSettled


class Known(Struct, frozen=True):
    """The dispatcher has it: there is nothing to do but to ask again later."""


class AskAgain(Struct, frozen=True):
    """The dispatcher would have more to say."""


class OnItsWay(Struct, frozen=True):
    """It is not known, but may still be waiting in the stream."""

    reason: str


class Lost(Struct, frozen=True):
    """It is not known, and its message is gone: to be told again."""

    reason: str


class Expired(Struct, frozen=True):
    """It is not known, and too old for anybody to say whether it has run."""


Verdict = Settled | Known | AskAgain | OnItsWay | Lost | Expired


def reach(mark: Mark, sight: Sight) -> Reach:
    """How a mark stands to the stream as it is now."""
    if sight.created != mark.created:
        return "new_stream"
    if sight.last_sequence < mark.sequence:
        return "rolled_back"
    return "passed" if sight.done_through >= mark.sequence else "waiting"


def is_lost(told_at: datetime, mark: Mark | None, sight: Sight, *, leeway: timedelta) -> str | None:
    """Why something that was told and is not known cannot be on its way; none if it can.

    The leeway is for transactions that had read the time and not committed when the mark
    was taken.
    """
    if mark is None or told_at > mark.taken_at - leeway:
        return None
    reached = reach(mark, sight)
    return reached if reached in ("passed", "new_stream") else None


def unheard(
    ids: Iterable[UUID],
    told_at: Mapping[UUID, datetime],
    mark: Mark | None,
    sight: Sight,
    *,
    leeway: timedelta,
) -> list[UUID]:
    """Those of what never came that cannot be on its way any more: to be told again."""
    return [
        one
        for one in ids
        if one in told_at and is_lost(told_at[one], mark, sight, leeway=leeway) is not None
    ]


def judge(
    works: Sequence[AskedWork],
    answer: ReconcileAnswer,
    *,
    told_again_at: Mapping[UUID, datetime],
    mark: Mark | None,
    sight: Sight,
    leeway: timedelta,
) -> dict[UUID, Verdict]:
    """What the answer means for each piece of work that was asked about.

    The sight must have been had before the question: a message that was consumed by then was
    also applied by then.
    """
    settled = {one.work: one for one in answer.settled}
    left, unknown, expired = set(answer.left), set(answer.unknown), set(answer.expired)
    verdicts: dict[UUID, Verdict] = {}
    for asked in works:
        if asked.work in settled:
            verdicts[asked.work] = Settled(settled[asked.work])
        elif asked.work in left:
            verdicts[asked.work] = AskAgain()
        elif asked.work in unknown or asked.work in expired:
            told_at = told_again_at.get(asked.work, asked.queued_at)
            why = is_lost(told_at, mark, sight, leeway=leeway)
            if why is None:
                verdicts[asked.work] = OnItsWay("not consumed yet")
            else:
                verdicts[asked.work] = Expired() if asked.work in expired else Lost(why)
        else:
            verdicts[asked.work] = Known()
    return verdicts


def pause(asks: int, *, first: timedelta) -> timedelta:
    """How long to wait before the same is asked again: doubling, up to an hour."""
    doubled: timedelta = first * 2 ** min(asks, 30)
    return max(first, min(doubled, LONGEST_PAUSE))


class ConsumerChanges(Struct, frozen=True, kw_only=True):
    """Jobs whose consumer is to be made or brought up to date, and jobs whose one is to go."""

    make: list[str]
    delete: list[str]


def consumer_changes(
    existing: Collection[str],
    needed: Mapping[str, bool],
    *,
    checked: Collection[str],
    tried: Mapping[str, float],
) -> ConsumerChanges:
    """Compare the jobs that have a consumer with the jobs that need one.

    `needed` has every declared job. `checked` are jobs whose consumer is known to have the right
    settings. Jobs whose turn was longest ago come first (`tried` says when), so that a job that
    cannot get its consumer never holds up the others.
    """
    have = set(existing)
    make = [job for job, is_needed in needed.items() if is_needed]
    make = [job for job in make if job not in have or job not in checked]
    return ConsumerChanges(
        make=sorted(make, key=lambda job: (tried.get(job, float("-inf")), job)),
        delete=sorted(job for job in have if not needed.get(job, False)),
    )
