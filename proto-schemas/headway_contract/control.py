"""Requests and replies of the worker protocol. They travel on core NATS, unwrapped."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from msgspec import Meta, Struct

from headway_contract.work import Name, Seconds

PROTOCOL = 1
# Jobs that one worker may name. A stream with more consumers than that is slow, too.
MOST_JOBS = 1_000

# Short and without NUL characters, which PostgreSQL does not store.
Text = Annotated[str, Meta(max_length=255, pattern=r"^[^\x00]*$")]


class Heartbeat(Struct, frozen=True, kw_only=True):
    """A worker process says that it lives and what it holds."""

    protocol: int = PROTOCOL
    worker: Text
    nonce: Annotated[Text, Meta(min_length=1)]
    host: Text = ""
    sdk: Text = ""
    sdk_version: Text = ""
    # Which version of its own code it runs; failures of another version are told apart.
    code_version: Text = ""
    jobs: Annotated[list[Name], Meta(max_length=MOST_JOBS)] = []
    slots: Annotated[int, Meta(ge=0, le=100_000)] = 0
    # Jobs of which it runs fewer at once than it has slots, and how many.
    concurrency: Annotated[dict[Name, Annotated[int, Meta(ge=0)]], Meta(max_length=MOST_JOBS)] = {}
    leases: list[UUID] = []
    runs: list[UUID] = []
    draining: bool = False
    stopped: bool = False
    sent_at: datetime | None = None


class CancelRun(Struct, frozen=True, kw_only=True):
    """Stop this run and finish it as cancelled."""

    run: UUID
    lease: UUID
    reason: str = ""


class ReleaseLease(Struct, frozen=True, kw_only=True):
    """The lease is no longer the worker's: stop its runs and publish nothing more."""

    lease: UUID
    reason: str


class LeaseWarning(Struct, frozen=True, kw_only=True):
    """The dispatcher did not take a message of the lease as the worker meant it."""

    lease: UUID
    message: str


class HeartbeatReply(Struct, frozen=True, kw_only=True):
    """What the dispatcher wants of the worker; empty when it has nothing to say.

    `renew` are leases that the worker names and of which no claim is known; `warnings` say what
    is wrong with messages of the last minute; `error` says what is wrong with a heartbeat that
    could not be read.
    """

    protocol: int = PROTOCOL
    dispatcher: str = ""
    cancel: list[CancelRun] = []
    release: list[ReleaseLease] = []
    renew: list[UUID] = []
    warnings: list[LeaseWarning] = []
    drain: bool = False
    heartbeat_seconds: Seconds | None = None
    error: str = ""


class CancelPush(Struct, frozen=True, kw_only=True):
    """The same as in a heartbeat's reply, sooner. May be lost."""

    cancel: list[CancelRun] = []
    release: list[ReleaseLease] = []


# What is answered today. A worker that hears another word treats it as undecided.
LeaseState = Literal["mine", "another", "ended", "undecided", "nothing_stored"]


class LeaseQuestion(Struct, frozen=True, kw_only=True):
    """A worker asks whose a lease is, after an answer that it cannot trust."""

    lease: UUID
    worker: str
    nonce: str


class LeaseAnswer(Struct, frozen=True, kw_only=True):
    """Whose the lease is, by the stored messages that count.

    `sequence` is what to expect next, also with `nothing_stored`, where refused messages may lie;
    `stored` are the ids of the events in the last message if the asking worker published it, so
    that a publisher whose reply was lost finds its own; `ended_runs` are runs of the lease that
    have an accepted outcome already.
    """

    answer: str
    sequence: int = 0
    stored: list[str] = []
    ended_runs: list[UUID] = []
    reason: str = ""
