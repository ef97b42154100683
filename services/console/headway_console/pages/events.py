"""Events, live."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from headway_clock import utc_now
from litestar import Response, get
from litestar.response import ServerSentEvent, ServerSentEventMessage

from headway_console.access.guards import needs, still_authorized
from headway_console.feed import EventBatch, Feed, event_number, follow_events
from headway_console.pages import form_fields as fields
from headway_console.pages.live import LONGEST_SECONDS, streamed
from headway_console.pages.shell import render, show_list, shown_in
from headway_console.reading.events import EventFilter, page_of_events, read_position
from headway_console.services import HttpRequest, read


@get("/events", opt=needs("viewer"))
async def events(request: HttpRequest) -> Response[str]:
    """List events, the newest first."""
    # Read first: the stream repeats events that arrive while the page is read.
    newest = await read(request, read_position, now=utc_now())
    filters = fields.read_filters(request, EventFilter)
    return await show_list(
        request, "events.html", page_of_events, filters=filters, newest=newest.settled
    )


@get("/events/feed", opt=needs("viewer"))
async def feed(request: HttpRequest) -> ServerSentEvent:
    """Stream new rows of the table after an event: the last that was sent, or that of the page."""
    after = request.headers.get("last-event-id") or fields.text_of(request, "after") or "0"
    followed: Feed = request.app.state.feed
    await followed.ready()
    batches = follow_events(
        followed,
        fields.read_filters(request, EventFilter),
        after=event_number(after, "after"),
        is_authorized=still_authorized(request),
        seconds=LONGEST_SECONDS,
    )
    return streamed(_rows(batches, shown_in(request)))


async def _rows(
    batches: AsyncGenerator[EventBatch], zones: dict[str, str]
) -> AsyncIterator[ServerSentEventMessage]:
    """Yield rows, the oldest first; the id lets a client resume."""
    async with aclosing(batches):
        await anext(batches)
        yield ServerSentEventMessage(event="listening", data="")
        async for batch in batches:
            if batch.events:
                rows = render("event_rows.html", events=batch.events, **zones)
                yield ServerSentEventMessage(event="events", data=rows, id=str(batch.settled))
            else:
                yield ServerSentEventMessage(comment="still here")
