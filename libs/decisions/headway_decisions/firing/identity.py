"""Causes of work, and the work ids derived from them.

A cause is its kind, a colon, and a value that is unique within the kind. User-supplied keys follow
the colon, so no key can look like another cause. The ledger holds one decision for each cause. Keys
may be used again after its retention, so the time of the decision is part of their work's id.
"""

from datetime import UTC, datetime
from functools import lru_cache
from uuid import UUID, uuid5

# Kinds with keys that may be used again.
_KEYED = ("trigger", "activation", "backfill")


def due_cause(due_at: datetime) -> str:
    """Return the cause of work for a due time."""
    return f"due:{stamp(due_at)}"


def stretch_cause(first: datetime, last: datetime) -> str:
    """Return the key of occurrences that were decided together."""
    return due_cause(first) if first == last else f"stretch:{stamp(first)}/{stamp(last)}"


def success_cause(parent: UUID, first: int, last: int) -> str:
    """Return the cause of a parent's success, or of several; each parent counts from 1."""
    return f"success:{parent}:{last}" if first == last else f"successes:{parent}:{first}/{last}"


def kind_of(cause: str) -> str:
    """Return the kind of a cause: `due`, `success`, `activation`, `trigger`, `backfill`."""
    return cause.partition(":")[0].partition("+")[0]


def repeated_cause(cause: str) -> str:
    """Return the cause for making work again that came to nothing."""
    # The count is part of the kind, where no key can look like it.
    counted, _, name = cause.partition(":")
    kind, _, times = counted.partition("+")
    return f"{kind}+{int(times or 0) + 1}:{name}"


def activation_cause(work: UUID, key: str) -> str:
    """Return the cause of an activation; its key is unique within the activating work."""
    return f"activation:{work}:{key}"


def trigger_cause(key: str) -> str:
    """Return the cause of a trigger; a key triggers once while it is remembered."""
    return f"trigger:{key}"


def backfill_cause(due_at: datetime) -> str:
    """Return the cause of backfilled work for a past due time."""
    return f"backfill:{stamp(due_at)}"


def occurrence_of(cause: str) -> datetime | None:
    """Return the due time of a scheduled or backfilled cause; `None` for others."""
    if kind_of(cause) not in ("due", "backfill"):
        return None
    return datetime.fromisoformat(cause.partition(":")[2])


def work_id(manifest: UUID, cause: str, decided_at: datetime) -> UUID:
    """Return the id of the work of a manifest and a cause."""
    keyed = kind_of(cause) in _KEYED
    return uuid5(manifest, f"{cause}@{stamp(decided_at)}" if keyed else cause)


def stamp(at: datetime) -> str:
    """Format an instant as text that is part of a cause."""
    # In UTC, because both passings of a repeated hour are equal as cache keys.
    return _written(at.astimezone(UTC))


@lru_cache(maxsize=1024)
def _written(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")
