"""News for pages that are open: that something has changed, not what.

A page hears it and asks for itself again, so what it shows has one origin. Those who listen share
what is read: a hundred open pages cost the database what one does.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from headway_clock import monotonic, utc_now
from headway_postgres_kit import Connection, Database, DatabaseUnavailable
from litestar import Request, get
from litestar.response import ServerSentEvent, ServerSentEventMessage

from headway_console.access.guarding import needs
from headway_console.reading.pulse import Pulse, read_pulse

_EVERY_SECONDS = 1.0
# What follows from a change may leave no trace in a history: tell once more, soon after.
_ECHO_AFTER = 3
# Ages and lags grow without anything being written down.
_AT_LEAST_EVERY = 15
# Then the browser comes back, and is asked again who it is.
LONGEST_SECONDS = 300
# For those who look at one thing closely.
_CLOSELY_SECONDS = 0.5

Look = Callable[[Connection], Awaitable[Any]]


class Listening:
    """What everybody hears who listens, and the end of it when the console stops."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._over = asyncio.Event()
        self._lock = asyncio.Lock()
        self._read_at = 0.0
        self._pulse: Pulse | None = None

    def stop(self) -> None:
        """End all streams, so that they do not hold up the server."""
        self._over.set()

    async def changes(self) -> AsyncIterator[ServerSentEventMessage]:
        """`changed` whenever something was written down, and now and then anyway."""
        seen, quiet, patience = await self._now(), 0, _ECHO_AFTER
        yield ServerSentEventMessage(event="listening", data="")
        for _ in range(int(LONGEST_SECONDS / _EVERY_SECONDS)):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), _EVERY_SECONDS)
                return
            pulse, quiet = await self._now(), quiet + 1
            if pulse != seen or quiet >= patience:
                patience = _AT_LEAST_EVERY if pulse == seen else _ECHO_AFTER
                seen, quiet = pulse, 0
                yield ServerSentEventMessage(event="changed", data="")

    async def to(self, look: Look) -> AsyncIterator[ServerSentEventMessage]:
        """`changed` whenever another look shows something else than the one before."""
        seen: Any = ...
        for _ in range(int(LONGEST_SECONDS / _CLOSELY_SECONDS)):
            with contextlib.suppress(DatabaseUnavailable):
                async with self._database.acquire() as connection:
                    shown = await look(connection)
                if shown != seen:
                    name = "listening" if seen is ... else "changed"
                    yield ServerSentEventMessage(event=name, data="")
                seen = shown
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), _CLOSELY_SECONDS)
                return

    async def _now(self) -> Pulse | None:
        """The latest pulse; none while the database does not answer."""
        async with self._lock:
            if monotonic() - self._read_at > _EVERY_SECONDS / 2:
                try:
                    async with self._database.acquire() as connection:
                        self._pulse = await read_pulse(connection, now=utc_now())
                except DatabaseUnavailable:
                    self._pulse = None
                self._read_at = monotonic()
            return self._pulse


@get("/live", opt=needs("viewer"), sync_to_thread=False)
def live(request: Request[Any, Any, Any]) -> ServerSentEvent:
    """Tell a page that something has changed."""
    listening: Listening = request.app.state.listening
    return ServerSentEvent(listening.changes(), retry_duration=2000)


HANDLERS = [live]
