"""Facts that people want to hear of, as they are noted where they are recorded."""

from datetime import datetime
from uuid import UUID

from headway_contract.settled import WorkSettled
from msgspec import Struct


class DeadLettered(Struct, frozen=True, kw_only=True):
    """Work was settled with a dead letter; its job is `None` if nobody knows it any more."""

    outcome: WorkSettled
    job: str | None


class Blocked(Struct, frozen=True, kw_only=True):
    """A dead letter blocks a manifest that nothing blocked before."""

    manifest: str
    group: str
    dead_letter: UUID


class Missed(Struct, frozen=True, kw_only=True):
    """A stretch of due times passed by and is not made good."""

    manifest_id: UUID
    cause: str
    manifest: str
    group: str
    first_due_at: datetime
    last_due_at: datetime
