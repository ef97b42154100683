"""Events, live."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, Literal

from headway_clock import utc_now
from headway_errors import Invalid
from litestar import Request, Response, get
from litestar.response import ServerSentEvent, ServerSentEventMessage

from headway_console.access.guards import needs, still_authorized
from headway_console.feed import EventBatch, Feed, follow_events
from headway_console.pages.form_fields import choice_of, filters_of, id_filter, moment_of, text_of
from headway_console.pages.live import LONGEST_SECONDS, streamed
from headway_console.pages.shell import Page, render, show
from headway_console.reading.events import EventFilter, begin_to_follow, page_of_events

_FILTERS = ("type", "manifest", "job", "group", "work", "run", "accepted", "since", "before")
_LAST_EVENT_ID = "last-event-id"
_LARGEST = 2**63 - 1


@get("/events", opt=needs("viewer"))
async def events(request: Request[Any, Any, Any]) -> Response[str]:
    """List events, the newest first."""
    cursor = text_of(request, "cursor")
    async with request.app.state.database.acquire() as connection:
        # Read first: the stream repeats events that arrive while the page is read.
        newest = (await begin_to_follow(connection, now=utc_now())).settled
        found = await page_of_events(connection, _filters(request), cursor=cursor)
    return show(
        request,
        "events.html",
        page=found,
        values=filters_of(request, *_FILTERS),
        newest=newest,
        cursor=cursor or "",
    )


@get("/events/feed", opt=needs("viewer"))
async def feed(request: Request[Any, Any, Any]) -> ServerSentEvent:
    """Stream new rows of the table."""
    followed: Feed = request.app.state.feed
    await followed.ready()
    batches = follow_events(
        followed,
        _filters(request),
        after=_begin(request),
        goes_on=still_authorized(request),
        seconds=LONGEST_SECONDS,
    )
    return streamed(_rows(batches))


async def _rows(batches: AsyncGenerator[EventBatch]) -> AsyncIterator[ServerSentEventMessage]:
    """Yield rows, the oldest first; the id lets a client resume."""
    async with aclosing(batches):
        await anext(batches)
        yield ServerSentEventMessage(event="listening", data="")
        async for batch in batches:
            if batch.events:
                rows = render("event_rows.html", events=batch.events)
                yield ServerSentEventMessage(event="events", data=rows, id=str(batch.settled))
            else:
                yield ServerSentEventMessage(comment="still here")


def _begin(request: Request[Any, Any, Any]) -> int:
    """Return the number to resume after: of the last event, or of the page."""
    given = request.headers.get(_LAST_EVENT_ID) or text_of(request, "after") or "0"
    if not given.isascii() or not given.isdigit() or int(given) > _LARGEST:
        raise Invalid("after: expected the number of an event")
    return int(given)


def _filters(request: Request[Any, Any, Any]) -> EventFilter:
    accepted = choice_of(request, "accepted", Literal["yes", "no"])
    types = (text_of(request, "type") or "").replace(",", " ").split()
    return EventFilter(
        type=tuple(types),
        manifest=text_of(request, "manifest"),
        job=text_of(request, "job"),
        group=text_of(request, "group"),
        work=id_filter(request, "work"),
        run=id_filter(request, "run"),
        accepted=None if accepted is None else accepted == "yes",
        since=moment_of(request, "since"),
        before=moment_of(request, "before"),
    )


PAGE = Page(title="Events", path="/events", key="e", handlers=(events, feed))
