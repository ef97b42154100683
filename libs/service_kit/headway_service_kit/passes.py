"""The loop around a pass.

A pass does its work once and returns how long it may rest, if it knows. The loop waits for that
time, for a wake-up or for the safety poll, whichever comes first. It backs off after a failure and
records for health when the pass last succeeded.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime

from headway_clock import jitter, monotonic
from headway_jetstream_kit import BrokerUnavailable, ConsumerMissing
from headway_postgres_kit import DatabaseUnavailable
from headway_postgres_kit.database import ANSWER_SECONDS
from headway_tracing.log import get_logger

log = get_logger(__name__)

SAFETY_POLL = 5.0
_FIRST_BACKOFF = 0.2

# A longer run counts as hanging. A run on a database that hangs fails only after twice the time
# that an answer may take: for the statement and for the rollback.
_PATIENCE = 2 * ANSWER_SECONDS + 5

RunOnce = Callable[[], Awaitable[float | None]]


class ExpectedFault(Exception):
    """A fault of a pass that is no bug; its text says what failed."""


# Faults that are no bugs: the pass logs a line and tries again.
EXPECTED_FAULTS = (ExpectedFault, DatabaseUnavailable, BrokerUnavailable, ConsumerMissing)


class Wakeup:
    """Wakes a pass of the same process; calls before the pass starts are coalesced."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._has_work = False
        self._runs_at: datetime | None = None

    def call(self, *, has_work: bool = False) -> None:
        """Wake the pass; `has_work` means that it need not look for work first."""
        self._has_work = self._has_work or has_work
        self._event.set()

    def call_by(self, at: datetime | None) -> None:
        """Wake the pass if it would not run by itself by this time."""
        if at is not None and (self._runs_at is None or at < self._runs_at):
            self.call()

    def begin(self) -> bool:
        """Record that the pass starts; return whether a call since the last start had work.

        The pass may miss anything that is due from now on, so `call_by` wakes it again.
        """
        self._runs_at = None
        has_work, self._has_work = self._has_work, False
        return has_work

    def runs_at(self, at: datetime | None) -> None:
        """Record when the pass runs again by itself."""
        self._runs_at = at

    async def rest(self, seconds: float) -> None:
        """Wait for a call, at most this long."""
        if seconds <= 0 or self._event.is_set():
            self._event.clear()
            # A pass that never rests must let other tasks run.
            await asyncio.sleep(0)
            return
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return
        finally:
            self._event.clear()


def seconds_until(at: datetime | None, now: datetime) -> float | None:
    """Return how long a pass may rest before a time; `None` without a time."""
    return None if at is None else max(0.0, (at - now).total_seconds())


@dataclass(eq=False)
class Pass:
    """Runs a pass until cancelled, and answers for its health.

    `run_once` returns the seconds that it may rest, or `None`. `on_end` is called after each run
    with the name, and with the duration of a success.
    """

    name: str
    run_once: RunOnce
    wakeup: Wakeup = field(default_factory=Wakeup)
    poll: float = SAFETY_POLL
    longest_backoff: float = 10.0
    on_end: Callable[[str, float | None], None] | None = None

    def __post_init__(self) -> None:
        self._ended_at = self._succeeded_at = monotonic()
        self._error: str | None = None

    async def keep_running(self) -> None:
        """Run the pass for ever, with a backoff after failures."""
        backoff = _FIRST_BACKOFF
        while True:
            began = monotonic()
            try:
                rest = await self.run_once()
            except Exception as error:
                self._end(None, f"{type(error).__name__}: {error}")
                fields = {"name": self.name, "error": error, "retry_seconds": round(backoff, 1)}
                if isinstance(error, EXPECTED_FAULTS):
                    log.warning("pass failed", **fields)
                else:
                    log.exception("pass failed", **fields)
                await asyncio.sleep(backoff * (1 + jitter(0.2)))
                backoff = min(backoff * 2, self.longest_backoff)
            else:
                self._end(monotonic() - began, None)
                backoff = _FIRST_BACKOFF
                await self.wakeup.rest(self.poll if rest is None else min(rest, self.poll))

    def _end(self, seconds: float | None, error: str | None) -> None:
        self._ended_at, self._error = monotonic(), error
        if error is None:
            self._succeeded_at = self._ended_at
        if self.on_end is not None:
            self.on_end(self.name, seconds)

    def age(self) -> float:
        """Return the seconds since the last success, or since the start."""
        return monotonic() - self._succeeded_at

    async def silence(self) -> str | None:
        """Return a problem if the pass hangs: it neither succeeds nor fails."""
        silent = monotonic() - self._ended_at
        is_hanging = silent > self.poll + _PATIENCE
        return f"{self.name}: no result for {silent:.0f} s" if is_hanging else None

    async def trouble(self) -> str | None:
        """Return a problem if the last run of the pass failed."""
        return f"{self.name}: {self._error}" if self._error else None
