"""Notifications: events for a webhook. They travel over HTTP, never over NATS."""

from datetime import datetime
from typing import ClassVar
from uuid import UUID

from headway_contract.envelope import EventData


class WorkDeadLettered(EventData, frozen=True, kw_only=True):
    """A piece of work failed for the last time. The subject is its dead letter."""

    type: ClassVar[str] = "headway.notification.dead_lettered.v1"
    dead_letter: UUID
    work: UUID
    round: int
    manifest: str | None = None
    group: str
    job: str | None = None
    reason: str = ""
    attempts: int


class FiresMissed(EventData, frozen=True, kw_only=True):
    """Consecutive due times of a manifest were missed. The subject is the manifest."""

    type: ClassVar[str] = "headway.notification.missed.v1"
    manifest: str
    group: str
    first_due_at: datetime
    last_due_at: datetime


class ManifestBlocked(EventData, frozen=True, kw_only=True):
    """A manifest is blocked until its dead letter is resolved. The subject is the manifest."""

    type: ClassVar[str] = "headway.notification.blocked.v1"
    manifest: str
    group: str
    dead_letter: UUID


class Digest(EventData, frozen=True, kw_only=True):
    """A summary of many notifications of one type, which is the subject of the event."""

    type: ClassVar[str] = "headway.notification.digest.v1"
    of: str
    count: int
    first_at: datetime
    last_at: datetime
    subjects: list[str]


class Trial(EventData, frozen=True, kw_only=True):
    """A test notification. The subject is its actor."""

    type: ClassVar[str] = "headway.notification.test.v1"
    actor: str
