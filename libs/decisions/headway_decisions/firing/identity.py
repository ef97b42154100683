"""Causes of the work of manifests, and the ids that are derived from them.

A cause is its kind, a colon, and what tells it from others of that kind. Keys of people and
programs stand behind the colon, so nothing that they contain can make another cause of it.

The ledger holds one decision for each cause, so the same cause can never make two pieces of
work, whoever decides it, however often. A decision is forgotten one day. A due time and a success
never come again, but a key may, and means other work then: no id is ever used twice.
"""

from datetime import UTC, datetime
from functools import lru_cache
from uuid import UUID, uuid5

# What is told apart by keys of people and programs, who may use them again one day.
_KEYED = ("trigger", "activation", "backfill")


def due_cause(due_at: datetime) -> str:
    """The cause of work that a due time made."""
    return f"due:{stamp(due_at)}"


def stretch_cause(first: datetime, last: datetime) -> str:
    """The key of occurrences that were decided together; one alone is named by its time."""
    return due_cause(first) if first == last else f"stretch:{stamp(first)}/{stamp(last)}"


def success_cause(parent: UUID, first: int, last: int) -> str:
    """The cause that a parent's success is, or the key of several that were decided together.

    It names the parent, because another parent counts its successes anew.
    """
    return f"success:{parent}:{last}" if first == last else f"successes:{parent}:{first}/{last}"


def kind_of(cause: str) -> str:
    """What asked for work: `due`, `success`, `activation`, `trigger`, also if it is made again."""
    return cause.partition(":")[0].partition("+")[0]


def repeated_cause(cause: str) -> str:
    """The cause under which work that came to nothing is made again; it may be once more.

    How often stands with the kind, where no key can look like it.
    """
    counted, _, name = cause.partition(":")
    kind, _, times = counted.partition("+")
    return f"{kind}+{int(times or 0) + 1}:{name}"


def activation_cause(work: UUID, key: str) -> str:
    """The cause that an activation is: its key tells it from others by the same work."""
    return f"activation:{work}:{key}"


def trigger_cause(key: str) -> str:
    """The cause that a trigger is: the same key triggers once for as long as it is remembered."""
    return f"trigger:{key}"


def backfill_cause(due_at: datetime) -> str:
    """The cause of work that somebody asked for in place of a due time of the past."""
    return f"backfill:{stamp(due_at)}"


def occurrence_of(cause: str) -> datetime | None:
    """The due time that work stands for, on schedule or backfilled; `None` for other causes."""
    if kind_of(cause) not in ("due", "backfill"):
        return None
    return datetime.fromisoformat(cause.partition(":")[2])


def work_id(manifest: UUID, cause: str, decided_at: datetime) -> UUID:
    """The id of the work that a cause makes of a manifest.

    Of keys only as long as they are remembered, so the time of the decision, which is kept with
    it, is part of the name.
    """
    keyed = kind_of(cause) in _KEYED
    return uuid5(manifest, f"{cause}@{stamp(decided_at)}" if keyed else cause)


def stamp(at: datetime) -> str:
    """Format an instant as text that is part of a cause."""
    # In UTC, because the two passings of a repeated hour are equal as keys.
    return _written(at.astimezone(UTC))


@lru_cache(maxsize=1024)
def _written(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")
