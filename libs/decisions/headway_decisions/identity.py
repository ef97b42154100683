"""Causes, and the ids that are derived from them.

Work is named by what caused it, so the same cause can never make two pieces of work,
whoever decides it, however often.
"""

import hashlib
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from uuid import UUID, uuid5

_CHANCES = 1 << 128

# The namespace of work that has no manifest.
ENQUEUED = UUID("7d1f6a0e-5c3b-4a92-9f0e-6a8d2c41b7f3")


def due_cause(due_at: datetime) -> str:
    """The cause of work that a due time made."""
    return f"due:{_stamp(due_at)}"


def stretch_cause(first: datetime, last: datetime) -> str:
    """The key of occurrences that were decided together; one alone is named by its time."""
    return due_cause(first) if first == last else f"stretch:{_stamp(first)}/{_stamp(last)}"


def success_cause(parent: UUID, first: int, last: int) -> str:
    """The cause that a parent's success is, or the key of several that were decided together.

    It names the parent, because another parent counts its successes anew.
    """
    return f"success:{parent}:{last}" if first == last else f"successes:{parent}:{first}/{last}"


def repeated_cause(cause: str, times: int) -> str:
    """A cause whose work came to nothing and is made again."""
    return f"{cause}+{times}"


def activation_cause(work: UUID, key: str) -> str:
    """The cause that an activation is: its key tells it from others by the same work."""
    return f"activation:{work}:{key}"


def trigger_cause(key: str) -> str:
    """The cause that a trigger is: the same key triggers only once."""
    return f"trigger:{key}"


def work_id(manifest: UUID, cause: str) -> UUID:
    """The id of the work that a cause makes of a manifest."""
    return uuid5(manifest, cause)


def enqueue_cause(job: str, key: str) -> str:
    """The cause that enqueuing is: the same key of a job makes only one piece of work."""
    return f"enqueue:{job}:{key}"


def enqueued_work_id(cause: str) -> UUID:
    """The id of the work that a cause makes without a manifest.

    By SHA-256 as version 8 of RFC 9562, because PostgreSQL, which makes these ids in the
    application's own transaction, has no SHA-1 without an extension: `headway.work_id` there.
    """
    digest = bytearray(hashlib.sha256(ENQUEUED.bytes + cause.encode()).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x80
    digest[8] = digest[8] & 0x3F | 0x80
    return UUID(bytes=bytes(digest))


def fire_at(manifest: UUID, due_at: datetime, jitter_seconds: float) -> datetime:
    """When a due time is let go: never early, and the same whenever it is asked.

    The chance is drawn from the names of manifest and time, so a preview knows it and no
    restart draws anew.
    """
    if not jitter_seconds:
        return due_at
    chance = uuid5(manifest, f"jitter:{_stamp(due_at)}").int / _CHANCES
    return due_at + timedelta(seconds=int(chance * (jitter_seconds + 1)))


def _stamp(at: datetime) -> str:
    # In UTC, because the two passings of a repeated hour are equal as keys.
    return _written(at.astimezone(UTC))


@lru_cache(maxsize=1024)
def _written(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")
