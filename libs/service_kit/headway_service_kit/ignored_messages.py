"""Counts of messages that a service ignores on purpose.

Several services may share a process. Each has its own counts: its passes and the callbacks of its
subscriptions find them through their context.
"""

from collections import Counter
from contextvars import ContextVar


class Counts:
    """Numbers by name since the service started."""

    def __init__(self) -> None:
        self._numbers: Counter[str] = Counter()

    def add(self, name: str, number: int = 1) -> None:
        """Add to a number."""
        if number:
            self._numbers[name] += number

    def read(self) -> dict[str, int]:
        """Return all numbers, sorted by name."""
        return dict(sorted(self._numbers.items()))


_COUNTS: ContextVar[Counts] = ContextVar("counts")


class _CountsOfContext:
    """Adds to the counts of the service whose context is active."""

    def add(self, name: str, number: int = 1) -> None:
        """Add to a number; does nothing outside of a service."""
        counts = _COUNTS.get(None)
        if counts is not None:
            counts.add(name, number)


IGNORED_MESSAGES = _CountsOfContext()


def new_counts() -> Counts:
    """Create the counts of the service that starts in this context."""
    counts = Counts()
    _COUNTS.set(counts)
    return counts
