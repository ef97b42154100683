"""Causes, and the ids that are derived from them.

Work is named by what caused it, so the same cause can never make two pieces of work,
whoever decides it, however often.
"""

from datetime import UTC, datetime
from uuid import UUID, uuid5


def due_cause(due_at: datetime) -> str:
    """The cause of work that a due time made."""
    return f"due:{due_at.astimezone(UTC).isoformat().replace('+00:00', 'Z')}"


def missed_cause(first: datetime, last: datetime) -> str:
    """The key of a stretch of occurrences that were decided together."""
    return f"missed:{due_cause(first)[4:]}/{due_cause(last)[4:]}"


def work_id(manifest: UUID, cause: str) -> UUID:
    """The id of the work that a cause makes of a manifest."""
    return uuid5(manifest, cause)
