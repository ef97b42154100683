"""Why work waits: questions to the dispatcher, and what it asks the scheduler for that. They travel
on core NATS, unwrapped.
"""

from datetime import datetime
from uuid import UUID

from msgspec import Struct


class ExplainWorkQuestion(Struct, frozen=True, kw_only=True):
    """Why does a piece of work wait, or what became of it?"""

    work: UUID


class OriginQuestion(Struct, frozen=True, kw_only=True):
    """What became of work that the dispatcher does not know?"""

    work: UUID


class OriginAnswer(Struct, frozen=True, kw_only=True):
    """What the scheduler knows of it: `text` says that in words that follow its name.

    It was `enqueued` and waits to be taken up, was `refused` then, is `on_its_way` to the
    dispatcher, or `settled` and forgotten there; or it is `unknown`.
    """

    state: str = "unknown"
    text: str = ""
    manifest: str | None = None
    group: str = ""
    job: str = ""
    since: datetime | None = None


class GateStatus(Struct, frozen=True, kw_only=True):
    """One gate that work passes: whether it is open now, and its figures if it has any.

    `used` of `limit` are taken. `opens_at` is when a closed one opens by itself, if that is known.
    """

    gate: str
    open: bool
    text: str
    used: int | None = None
    limit: int | None = None
    opens_at: datetime | None = None


class SlotHolder(Struct, frozen=True, kw_only=True):
    """A run that holds a slot which the work waits for."""

    run: UUID
    work: UUID
    manifest: str | None = None
    group: str
    job: str
    worker: str | None = None
    state: str
    since: datetime


class ExplainWorkAnswer(Struct, frozen=True, kw_only=True):
    """How work stands; `text` says it in one paragraph.

    Its `state` is the dispatcher's, or of work that has not come there what the scheduler says of
    it: `enqueued`, `refused`, `on_its_way`, or `settled` and forgotten.

    `gates` are in the order in which they are passed. `reason` names the first that is closed,
    `holders` are the runs that keep it closed, the oldest first, and `ahead` is how much work
    comes before this one there (`ahead_or_more` if that was not counted to its end). An
    `estimated_start` is no promise: `estimate` says what it rests on, or why there is none.
    """

    work: UUID
    state: str
    group: str
    job: str
    text: str
    manifest: str | None = None
    round: int = 1
    attempts: int = 0
    runs: int = 0
    queued_at: datetime | None = None
    outcome: str | None = None
    reason: str | None = None
    gates: list[GateStatus] = []
    holders: list[SlotHolder] = []
    holders_in_all: int = 0
    ahead: int | None = None
    ahead_or_more: bool = False
    estimated_start: datetime | None = None
    estimate: str = ""
    expires_at: datetime | None = None
