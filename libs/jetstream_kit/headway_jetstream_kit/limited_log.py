"""A limit on log entries about faults of others.

Without it a client that sends malformed messages decides how fast the log grows.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from headway_clock import monotonic
from headway_tracing.log import Log

PERIOD_SECONDS = 60.0


class LimitedLog:
    """Writes at most one entry per event and period; the next one counts those suppressed."""

    def __init__(
        self,
        log: Log,
        *,
        period: float = PERIOD_SECONDS,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._log = log
        self._period = period
        self._now = now
        self._written_at: dict[str, float] = {}
        self._suppressed: Counter[str] = Counter()

    def warning(self, event: str, /, *, count: int = 1, **fields: Any) -> None:
        """Log at level WARNING; the entry stands for `count` faults."""
        if self._is_due(event, count):
            self._log.warning(event, **fields, **self._take_suppressed(event))

    def error(self, event: str, /, *, count: int = 1, **fields: Any) -> None:
        """Log at level ERROR; the entry stands for `count` faults."""
        if self._is_due(event, count):
            self._log.error(event, **fields, **self._take_suppressed(event))

    def _is_due(self, event: str, count: int) -> bool:
        now = self._now()
        last = self._written_at.get(event)
        if last is not None and now - last < self._period:
            self._suppressed[event] += count
            return False
        self._written_at[event] = now
        return True

    def _take_suppressed(self, event: str) -> dict[str, int]:
        suppressed = self._suppressed.pop(event, 0)
        return {"suppressed": suppressed} if suppressed else {}
