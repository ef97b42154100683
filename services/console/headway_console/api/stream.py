"""Server-sent events.

Each message is one event of history in JSON. Its `id` is a number below which no event is missing:
a client that reconnects with it as Last-Event-ID receives all later events, some perhaps twice.
"""

from collections.abc import AsyncIterator
from contextlib import aclosing
from uuid import UUID

import msgspec
from headway_contract.fields import Name, Text
from headway_errors import Invalid
from litestar.response import Stream
from msgspec import Struct

from headway_console import feed as feeds
from headway_console.access.guards import still_authorized
from headway_console.api.endpoints import SYSTEM, endpoint
from headway_console.feed import Feed, GoesOn
from headway_console.reading.events import EventFilter, EventRow
from headway_console.reading.pages import Several
from headway_console.services import HttpRequest

# Then the client reconnects and authenticates again.
_LONGEST_SECONDS = 3600.0
_LAST_EVENT_ID = "last-event-id"
_LARGEST = 2**63 - 1


class FollowQuestion(Struct, frozen=True, kw_only=True):
    """Filters of the stream; types as in run.completed, run.*."""

    type: Several = ()
    manifest: Text | None = None
    group: Name | None = None
    job: Name | None = None
    work: UUID | None = None
    run: UUID | None = None


@endpoint("GET", "/events/stream", SYSTEM, streams=True, answer=EventRow)
async def follow_events(request: HttpRequest, question: FollowQuestion) -> Stream:
    """Stream events as server-sent events; Last-Event-ID resumes after an event."""
    filters = EventFilter(**msgspec.structs.asdict(question))
    after = _read_id(request.headers.get(_LAST_EVENT_ID))
    feed: Feed = request.app.state.feed
    await feed.ready()
    return Stream(
        messages(feed, filters, after, still_authorized(request)),
        media_type="text/event-stream",
        headers={"X-Accel-Buffering": "no"},
    )


async def messages(
    feed: Feed, filters: EventFilter, after: int | None, goes_on: GoesOn
) -> AsyncIterator[bytes]:
    """Yield messages until the client disconnects or loses its rights, or the console stops."""
    batches = feeds.follow_events(
        feed, filters, after=after, goes_on=goes_on, seconds=_LONGEST_SECONDS
    )
    async with aclosing(batches):
        async for batch in batches:
            yield _written(batch.events, batch.settled)


def _written(events: list[EventRow], settled: int | None) -> bytes:
    """Write a batch; the number comes with the last event, because only then none is missing.

    An empty batch is a comment with the number.
    """
    number = b"" if settled is None else b"id: %d\n" % settled
    if not events:
        return b": still here\n%s\n" % number
    before = b"".join(b"data: " + msgspec.json.encode(event) + b"\n\n" for event in events[:-1])
    return before + b"%sdata: %s\n\n" % (number, msgspec.json.encode(events[-1]))


def _read_id(given: str | None) -> int | None:
    if not given:
        return None
    if not given.isascii() or not given.isdigit() or int(given) > _LARGEST:
        raise Invalid("Last-Event-ID: expected the id of an event of this stream, a number")
    return int(given)
