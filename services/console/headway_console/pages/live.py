"""News for pages that are open: that something has changed, not what.

A page hears it and asks for itself again, so what it shows has one origin. All of them hear it from
the feed that the API's stream is told by: a hundred open pages cost the database what one does.
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from headway_clock import monotonic
from headway_postgres_kit import Connection, Database, DatabaseUnavailable
from litestar import Request, get
from litestar.response import ServerSentEvent, ServerSentEventMessage

from headway_console.access.guards import needs, still_let_in
from headway_console.feed import ASK_AGAIN_SECONDS, Feed, FeedEnded, FeedFull, GoesOn

# A page that asks for itself more often does nothing else.
_APART_SECONDS = 1.0
# What follows from a change may leave no trace in a history: tell once more, soon after.
_ECHO_SECONDS = 3.0
# Ages and lags grow without anything being written down.
_AT_LEAST_EVERY_SECONDS = 15.0
# Then the browser comes back, and is asked again who it is.
LONGEST_SECONDS = 300.0
# For those who look at one thing closely.
_CLOSELY_SECONDS = 0.5
# Then the stream ends, and the browser comes back by itself.
_OVER = (FeedEnded, FeedFull, DatabaseUnavailable)

Look = Callable[[Connection], Awaitable[Any]]


class Listening:
    """What open pages hear, and the end of it when the console stops."""

    def __init__(self, feed: Feed, database: Database) -> None:
        self._feed = feed
        self._database = database

    async def changes(self, goes_on: GoesOn) -> AsyncIterator[ServerSentEventMessage]:
        """`changed` whenever something was written down, and now and then anyway."""
        until = monotonic() + LONGEST_SECONDS
        with contextlib.suppress(*_OVER):
            async with self._feed.watch() as watching:
                yield ServerSentEventMessage(event="listening", data="")
                told_at, patience = monotonic(), _ECHO_SECONDS
                while monotonic() < until and await goes_on():
                    rest = told_at + patience - monotonic()
                    changed = await watching.changed(min(max(rest, 0.0), ASK_AGAIN_SECONDS))
                    if not changed and monotonic() < told_at + patience:
                        continue
                    yield ServerSentEventMessage(event="changed", data="")
                    told_at = monotonic()
                    patience = _ECHO_SECONDS if changed else _AT_LEAST_EVERY_SECONDS
                    await watching.pause(_APART_SECONDS)

    async def to(self, look: Look, goes_on: GoesOn) -> AsyncIterator[ServerSentEventMessage]:
        """`changed` whenever another look shows something else than the one before.

        For what is in no history: the progress of a run, heartbeats of workers.
        """
        seen: Any = ...
        until = monotonic() + LONGEST_SECONDS
        with contextlib.suppress(*_OVER):
            async with self._feed.watch() as watching:
                while monotonic() < until and await goes_on():
                    with contextlib.suppress(DatabaseUnavailable):
                        async with self._database.acquire() as connection:
                            shown = await look(connection)
                        if shown != seen:
                            name = "listening" if seen is ... else "changed"
                            yield ServerSentEventMessage(event=name, data="")
                        seen = shown
                    await watching.pause(_CLOSELY_SECONDS)


def streamed(messages: AsyncIterator[ServerSentEventMessage]) -> ServerSentEvent:
    """The answer that tells a page messages as they come."""
    return ServerSentEvent(messages, retry_duration=2000)


@get("/live", opt=needs("viewer"), sync_to_thread=False)
def live(request: Request[Any, Any, Any]) -> ServerSentEvent:
    """Tell a page that something has changed."""
    listening: Listening = request.app.state.listening
    return streamed(listening.changes(still_let_in(request)))


HANDLERS = [live]
