"""Counts of messages that a service ignored on purpose, so that none disappears without a trace.

Several services may share a process. Each has counts of its own: whatever runs in a service, its
passes and the callbacks of its subscriptions, counts there by its context.
"""

from collections import Counter
from collections.abc import Sequence
from contextvars import ContextVar


class Counts:
    """Numbers by name, since the service began."""

    def __init__(self) -> None:
        self._numbers: Counter[str] = Counter()

    def add(self, name: str, number: int = 1) -> None:
        """Count something."""
        if number:
            self._numbers[name] += number

    def read(self) -> dict[str, int]:
        """All numbers, by name."""
        return dict(sorted(self._numbers.items()))


def total(counts: Sequence[Counts]) -> dict[str, int]:
    """The sums of several counts, by name."""
    sums = sum((Counter(count.read()) for count in counts), Counter[str]())
    return dict(sorted(sums.items()))


_COUNTS: ContextVar[Counts] = ContextVar("counts")


class _OfThisService:
    """The counts of the service in which it is used."""

    def add(self, name: str, number: int = 1) -> None:
        """Count something; outside of a service nobody reads it."""
        counts = _COUNTS.get(None)
        if counts is not None:
            counts.add(name, number)


IGNORED_MESSAGES = _OfThisService()


def new_counts() -> Counts:
    """Make counts for the service that is started from here on in this context."""
    counts = Counts()
    _COUNTS.set(counts)
    return counts
