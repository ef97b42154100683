"""Change notices for open pages.

A page that receives a notice reloads itself. All pages share the feed of the API's event stream, so
a hundred open pages cost the database as much as one.
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from headway_clock import monotonic
from headway_postgres_kit import Connection, DatabaseUnavailable
from litestar import get
from litestar.response import ServerSentEvent, ServerSentEventMessage

from headway_console.access.guards import needs, still_authorized
from headway_console.feed import RECHECK_SECONDS, Feed, FeedEnded, FeedFull
from headway_console.services import HttpRequest, read

# Minimum time between two reloads of a page.
_APART_SECONDS = 1.0
# Effects of a change may not appear in the history: notify once more, soon after.
_ECHO_SECONDS = 3.0
# Ages and lags grow without events.
_AT_LEAST_EVERY_SECONDS = 15.0
# Then the browser reconnects and authenticates again.
LONGEST_SECONDS = 300.0
# For detail pages.
_CLOSELY_SECONDS = 0.5
# Then the stream ends, and the browser reconnects.
_OVER = (FeedEnded, FeedFull, DatabaseUnavailable)

Probe = Callable[[Connection], Awaitable[Any]]


@get("/live", opt=needs("viewer"), sync_to_thread=False)
def live(request: HttpRequest) -> ServerSentEvent:
    """Stream change notices."""
    return streamed(_changes(request))


def watch(request: HttpRequest, probe: Probe) -> ServerSentEvent:
    """Stream a notice when `probe` returns another value, for state outside of the history."""
    return streamed(_differences(request, probe))


def streamed(messages: AsyncIterator[ServerSentEventMessage]) -> ServerSentEvent:
    """Make the streaming response."""
    return ServerSentEvent(messages, retry_duration=2000)


async def _changes(request: HttpRequest) -> AsyncIterator[ServerSentEventMessage]:
    """Yield `changed` at every change, and at intervals."""
    feed: Feed = request.app.state.feed
    is_authorized, until = still_authorized(request), monotonic() + LONGEST_SECONDS
    with contextlib.suppress(*_OVER):
        async with feed.watch() as watcher:
            yield ServerSentEventMessage(event="listening", data="")
            sent_at, patience = monotonic(), _ECHO_SECONDS
            while monotonic() < until and await is_authorized():
                rest = sent_at + patience - monotonic()
                changed = await watcher.changed(min(max(rest, 0.0), RECHECK_SECONDS))
                if not changed and monotonic() < sent_at + patience:
                    continue
                yield ServerSentEventMessage(event="changed", data="")
                sent_at = monotonic()
                patience = _ECHO_SECONDS if changed else _AT_LEAST_EVERY_SECONDS
                await watcher.pause(_APART_SECONDS)


async def _differences(request: HttpRequest, probe: Probe) -> AsyncIterator[ServerSentEventMessage]:
    feed: Feed = request.app.state.feed
    is_authorized, until = still_authorized(request), monotonic() + LONGEST_SECONDS
    seen: Any = ...
    with contextlib.suppress(*_OVER):
        async with feed.watch() as watcher:
            while monotonic() < until and await is_authorized():
                with contextlib.suppress(DatabaseUnavailable):
                    shown = await read(request, probe)
                    if shown != seen:
                        name = "listening" if seen is ... else "changed"
                        yield ServerSentEventMessage(event=name, data="")
                    seen = shown
                await watcher.pause(_CLOSELY_SECONDS)
