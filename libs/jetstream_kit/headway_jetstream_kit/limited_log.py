"""Log lines about trouble that others cause: the first at once, then one per period with counts.

Without a limit a stranger who sends rubbish decides how fast the log grows.
"""

import logging
from collections import Counter
from collections.abc import Callable

from headway_clock import monotonic

PERIOD_SECONDS = 60.0


class LimitedLog:
    """Writes at most one line per phrase and period; the next one says how many were left out."""

    def __init__(
        self,
        logger: logging.Logger,
        *,
        period: float = PERIOD_SECONDS,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._logger = logger
        self._period = period
        self._now = now
        self._written_at: dict[str, float] = {}
        self._left_out: Counter[str] = Counter()

    def warn(self, phrase: str, detail: str, *, count: int = 1) -> None:
        """Log at WARNING. `phrase` is a stable phrase, of which there are few."""
        self._write(logging.WARNING, phrase, detail, count)

    def error(self, phrase: str, detail: str, *, count: int = 1) -> None:
        """Log at ERROR. `phrase` is a stable phrase, of which there are few."""
        self._write(logging.ERROR, phrase, detail, count)

    def _write(self, level: int, phrase: str, detail: str, count: int) -> None:
        now = self._now()
        last = self._written_at.get(phrase)
        if last is not None and now - last < self._period:
            self._left_out[phrase] += count
            return
        self._written_at[phrase] = now
        before = self._left_out.pop(phrase, 0)
        more = f" ({before} more since the last such line)" if before else ""
        self._logger.log(level, "%s: %s%s", phrase, detail, more)
