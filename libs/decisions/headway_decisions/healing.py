"""Decide what a missing message means, and which consumers must exist.

The scheduler stores a *mark*: the stream's last sequence at a moment when all earlier decisions
were published. Once the consumer has passed the mark, or the stream was created anew, a message
from before the mark that the receiver does not know is lost. Until then it may still be waiting,
and republishing it would only add to the backlog. A stream that went back behind the mark proves
nothing, because it may hold older messages: it gets a new mark.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

from headway_contract.reconcile import OutstandingWork, ReconcileAnswer
from headway_contract.settled import WorkSettled
from msgspec import Struct

# The state of a mark: ahead of the consumer, passed by it, or out of date because the stream was
# created anew or its storage went back in time.
Reach = Literal["waiting", "passed", "new_stream", "rolled_back"]

LONGEST_PAUSE = timedelta(hours=1)

# The reason of work that is settled although the dispatcher does not know it.
FORGOTTEN = "the dispatcher keeps no record that old: its outcome is unknown"


class Mark(Struct, frozen=True, kw_only=True):
    """The end of a stream when all decisions before `taken_at` were published."""

    created: str
    sequence: int
    taken_at: datetime


class Sight(Struct, frozen=True, kw_only=True):
    """The state of a stream: its creation, its end, and its consumer's position."""

    created: str
    last_sequence: int
    done_through: int = 0


class Settled(Struct, frozen=True):
    """It is settled, and the outcome had not arrived."""

    end: WorkSettled


class Known(Struct, frozen=True):
    """The dispatcher has it: check again later."""


class AskAgain(Struct, frozen=True):
    """The answer was too long: ask again at once."""


class OnItsWay(Struct, frozen=True):
    """It is unknown, but may still be in the stream."""


class Lost(Struct, frozen=True):
    """It is unknown, and its message is lost: republish it."""

    reason: str


class Expired(Struct, frozen=True):
    """It is unknown, and too old to know whether it has run."""


Verdict = Settled | Known | AskAgain | OnItsWay | Lost | Expired


def reach(mark: Mark, sight: Sight) -> Reach:
    """Compare a mark with the current stream."""
    if sight.created != mark.created:
        return "new_stream"
    if sight.last_sequence < mark.sequence:
        return "rolled_back"
    return "passed" if sight.done_through >= mark.sequence else "waiting"


def is_lost(sent_at: datetime, mark: Mark | None, sight: Sight, *, leeway: timedelta) -> str | None:
    """Return why an unknown message is lost; `None` if it may still arrive."""
    # The leeway is for transactions that were open when the mark was taken.
    if mark is None or sent_at > mark.taken_at - leeway:
        return None
    reached = reach(mark, sight)
    return reached if reached in ("passed", "new_stream") else None


def unheard(
    ids: Iterable[UUID],
    sent_at: Mapping[UUID, datetime],
    mark: Mark | None,
    sight: Sight,
    *,
    leeway: timedelta,
) -> list[UUID]:
    """Return the missing messages that are lost and must be republished."""
    known = [id_ for id_ in ids if id_ in sent_at]
    return [id_ for id_ in known if is_lost(sent_at[id_], mark, sight, leeway=leeway) is not None]


def judge(
    works: Sequence[OutstandingWork],
    answer: ReconcileAnswer,
    *,
    republished_at: Mapping[UUID, datetime],
    mark: Mark | None,
    sight: Sight,
    leeway: timedelta,
) -> dict[UUID, Verdict]:
    """Judge each piece of work by the dispatcher's answer to a request after `sight` was read."""
    settled = {end.work: end for end in answer.settled}
    left, unknown, expired = set(answer.left), set(answer.unknown), set(answer.expired)
    verdicts: dict[UUID, Verdict] = {}
    for queued in works:
        if queued.work in settled:
            verdicts[queued.work] = Settled(settled[queued.work])
        elif queued.work in left:
            verdicts[queued.work] = AskAgain()
        elif queued.work in unknown or queued.work in expired:
            sent_at = republished_at.get(queued.work, queued.queued_at)
            why = is_lost(sent_at, mark, sight, leeway=leeway)
            if why is None:
                verdicts[queued.work] = OnItsWay()
            else:
                verdicts[queued.work] = Expired() if queued.work in expired else Lost(why)
        else:
            verdicts[queued.work] = Known()
    return verdicts


def pause(asks: int, *, first: timedelta) -> timedelta:
    """Return the pause before the next request: doubling, up to an hour."""
    doubled: timedelta = first * 2 ** min(asks, 30)
    return max(first, min(doubled, LONGEST_PAUSE))
