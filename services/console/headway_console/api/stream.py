"""Server-sent events.

Each message is one event of history in JSON. Its `id` is a number below which no event is missing:
a client that reconnects with it as Last-Event-ID receives all later events, some perhaps twice.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import msgspec
from litestar.response import Stream

from headway_console.access.guards import still_authorized
from headway_console.api.endpoints import Tag, endpoint
from headway_console.feed import EventBatch, Feed, event_number, follow_events
from headway_console.reading.events import EventFilter, EventRow
from headway_console.services import HttpRequest

# Then the client reconnects and authenticates again.
_LONGEST_SECONDS = 3600.0
_LAST_EVENT_ID = "Last-Event-ID"
# A stream has only new events, accepted or not.
_HIDDEN = ("accepted", "since", "before")


@endpoint(
    *("GET", "/events/stream", Tag.SYSTEM),
    name="follow_events",
    answer=EventRow,
    hidden=_HIDDEN,
    streams=True,
)
async def stream_events(request: HttpRequest, filters: EventFilter) -> Stream:
    """Stream events as server-sent events; Last-Event-ID resumes after an event."""
    given = request.headers.get(_LAST_EVENT_ID)
    after = event_number(given, _LAST_EVENT_ID) if given else None
    feed: Feed = request.app.state.feed
    await feed.ready()
    is_authorized = still_authorized(request)
    batches = follow_events(
        feed, filters, after=after, is_authorized=is_authorized, seconds=_LONGEST_SECONDS
    )
    return Stream(
        _messages(batches), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
    )


async def _messages(batches: AsyncGenerator[EventBatch]) -> AsyncIterator[bytes]:
    """Write batches; only the last event has the number, because then none is missing."""
    async with aclosing(batches):
        async for batch in batches:
            number = b"" if batch.settled is None else b"id: %d\n" % batch.settled
            if not batch.events:
                yield b": still here\n%s\n" % number
                continue
            *before, last = [b"data: %s\n" % msgspec.json.encode(event) for event in batch.events]
            yield b"".join(data + b"\n" for data in before) + number + last + b"\n"
