"""Heartbeats, lease questions, progress and log lines: unwrapped messages on core NATS.

Progress and log lines are not fenced and may be lost; no decision depends on them. They are
numbered, so that they may arrive late, twice or in any order.
"""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import Meta, Struct

from headway_contract.fields import Moment, Name, RequiredText, Seconds, Text

PROTOCOL = 1
# The maximum number of jobs of a worker: a stream with more consumers would be slow.
MOST_JOBS = 1_000


class Heartbeat(Struct, frozen=True, kw_only=True):
    """A worker process is alive, with these leases and runs."""

    protocol: int = PROTOCOL
    worker: Text
    nonce: RequiredText
    host: Text = ""
    sdk: Text = ""
    sdk_version: Text = ""
    code_version: Text = ""
    jobs: Annotated[list[Name], Meta(max_length=MOST_JOBS)] = []
    slots: Annotated[int, Meta(ge=0, le=100_000)] = 0
    # Jobs that it runs fewer times at once than it has slots.
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
    """The worker has lost the lease: stop its runs and publish nothing more."""

    lease: UUID
    reason: str


class LeaseWarning(Struct, frozen=True, kw_only=True):
    """The dispatcher did not apply a message of the lease as the worker intended."""

    lease: UUID
    message: str


class CancelPush(Struct, frozen=True, kw_only=True):
    """The cancels and releases of the next heartbeat's reply, sooner; it may be lost."""

    cancel: list[CancelRun] = []
    release: list[ReleaseLease] = []


class HeartbeatReply(CancelPush, frozen=True, kw_only=True):
    """The dispatcher's instructions to the worker."""

    protocol: int = PROTOCOL
    dispatcher: str = ""
    renew: list[UUID] = []  # leases of the worker whose claim is unknown
    warnings: list[LeaseWarning] = []  # about messages of the last minute
    drain: bool = False
    heartbeat_seconds: Seconds | None = None
    error: str = ""  # why the heartbeat could not be read


# The answers of this version. A worker treats any other answer as undecided.
LeaseState = Literal["mine", "another", "ended", "undecided", "nothing_stored"]


class LeaseQuestion(Struct, frozen=True, kw_only=True):
    """Ask for the owner of a lease, after a reply of the broker that is not conclusive."""

    lease: UUID
    worker: str
    nonce: str


class LeaseAnswer(Struct, frozen=True, kw_only=True):
    """The owner of the lease by its accepted messages, as a `LeaseState`."""

    answer: str
    sequence: int = 0  # for the next fence; above 0 with `nothing_stored` if messages were refused
    stored: list[str] = []  # ids of the events in the last message, if it is the asking worker's
    ended_runs: list[UUID] = []  # with an accepted outcome
    reason: str = ""


# Limits of a run's log.
LINES_LIMIT = 1000
LOG_BYTES_LIMIT = 256 * 1024
LINE_LIMIT = 4 * 1024
FIELDS_LIMIT = 4 * 1024
PROGRESS_LIMIT = 1024

Level = Literal["debug", "info", "warning", "error", "critical"]
LEVELS: tuple[Level, ...] = ("debug", "info", "warning", "error", "critical")


class LogLine(Struct, frozen=True, kw_only=True):
    """One line of a run's log; `number` counts the lines of the run from 1."""

    number: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    at: Moment
    level: str = "info"
    message: str = ""
    fields: dict[str, Any] = {}


class Progress(Struct, frozen=True, kw_only=True):
    """Progress and log lines of one run; `number` counts its messages from 1.

    Progress with a lower number than a known one is out of date. `dropped` counts the lines beyond
    the limits so far.
    """

    lease: UUID
    token: str
    run: UUID
    number: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    at: Moment
    percent: Annotated[float, Meta(ge=0, le=100)] | None = None
    message: str | None = None
    lines: list[LogLine] = []
    dropped: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
