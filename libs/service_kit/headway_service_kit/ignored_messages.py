"""Counts of messages that a service ignores on purpose.

Several services may share a process. Each has its own counts: its passes and the callbacks of its
subscriptions find them through their context.
"""

from collections import Counter
from contextvars import ContextVar

_COUNTS: ContextVar[Counter[str]] = ContextVar("counts")


def new_counts() -> Counter[str]:
    """Create the counts of the service that starts in this context."""
    counts = Counter[str]()
    _COUNTS.set(counts)
    return counts


def count_ignored(reason: str, number: int = 1) -> None:
    """Add to the counts of the current service; does nothing outside of a service."""
    counts = _COUNTS.get(None)
    if counts is not None and number:
        counts[reason] += number
