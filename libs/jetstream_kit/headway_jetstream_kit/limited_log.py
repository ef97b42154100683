"""A rate limit on log entries, so that clients with malformed messages cannot flood the log."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headway_clock import monotonic
from headway_tracing.log import Log


@dataclass
class LimitedLog:
    """Writes at most one entry per event and period; the next one counts the suppressed ones."""

    log: Log
    period: float = 60.0
    now: Callable[[], float] = monotonic
    _written_at: dict[str, float] = field(default_factory=dict, init=False)
    _suppressed: Counter[str] = field(default_factory=Counter, init=False)

    def warning(self, event: str, /, *, count: int = 1, **fields: Any) -> None:
        """Log at level WARNING; the entry stands for `count` faults."""
        self._write(self.log.warning, event, count, fields)

    def error(self, event: str, /, *, count: int = 1, **fields: Any) -> None:
        """Log at level ERROR; the entry stands for `count` faults."""
        self._write(self.log.error, event, count, fields)

    def _write(
        self, write: Callable[..., None], event: str, count: int, fields: dict[str, Any]
    ) -> None:
        now = self.now()
        last = self._written_at.get(event)
        if last is not None and now - last < self.period:
            self._suppressed[event] += count
            return
        self._written_at[event] = now
        if suppressed := self._suppressed.pop(event, 0):
            fields["suppressed"] = suppressed
        write(event, **fields)
