"""Events: what happens, as it happens."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, Literal

from headway_clock import utc_now
from headway_contract.http import InvalidRequest
from litestar import Request, Response, get
from litestar.response import ServerSentEvent, ServerSentEventMessage

from headway_console.access.guards import needs, still_let_in
from headway_console.feed import Feed, Told, told
from headway_console.pages.form_fields import choice_of, filters_of, id_asked, moment_of, text_of
from headway_console.pages.live import LONGEST_SECONDS, streamed
from headway_console.pages.shell import Page, render, show
from headway_console.reading.events import EventFilter, begin_to_follow, page_of_events

_FILTERS = ("type", "manifest", "job", "group", "work", "run", "accepted", "since", "before")
_LAST_EVENT_ID = "last-event-id"
_LARGEST = 2**63 - 1


@get("/events", opt=needs("viewer"))
async def events(request: Request[Any, Any, Any]) -> Response[str]:
    """Events, the newest first."""
    cursor = text_of(request, "cursor")
    async with request.app.state.database.acquire() as connection:
        # Looked at first: what comes about while the page is read is told by the stream as well.
        newest = (await begin_to_follow(connection, now=utc_now())).settled
        found = await page_of_events(connection, _asked(request), cursor=cursor)
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
    """What is added to the page, row by row."""
    followed: Feed = request.app.state.feed
    await followed.ready()
    heard = told(
        followed,
        _asked(request),
        after=_begin(request),
        goes_on=still_let_in(request),
        seconds=LONGEST_SECONDS,
    )
    return streamed(_rows(heard))


async def _rows(heard: AsyncGenerator[Told]) -> AsyncIterator[ServerSentEventMessage]:
    """Rows for the table, the oldest first. Whoever comes back says up to where it has all."""
    async with aclosing(heard):
        await anext(heard)
        yield ServerSentEventMessage(event="listening", data="")
        async for one in heard:
            if one.events:
                rows = render("event_rows.html", events=one.events)
                yield ServerSentEventMessage(event="events", data=rows, id=str(one.settled))
            else:
                yield ServerSentEventMessage(comment="still here")


def _begin(request: Request[Any, Any, Any]) -> int:
    """Behind which number it goes on: what was heard last, or what the page has shown."""
    given = request.headers.get(_LAST_EVENT_ID) or text_of(request, "after") or "0"
    if not given.isascii() or not given.isdigit() or int(given) > _LARGEST:
        raise InvalidRequest("after: it is the number of an event")
    return int(given)


def _asked(request: Request[Any, Any, Any]) -> EventFilter:
    accepted = choice_of(request, "accepted", Literal["yes", "no"])
    types = (text_of(request, "type") or "").replace(",", " ").split()
    return EventFilter(
        types=tuple(types),
        manifest=text_of(request, "manifest"),
        job=text_of(request, "job"),
        group=text_of(request, "group"),
        work=id_asked(request, "work"),
        run=id_asked(request, "run"),
        accepted=None if accepted is None else accepted == "yes",
        since=moment_of(request, "since"),
        before=moment_of(request, "before"),
    )


PAGE = Page(title="Events", path="/events", key="e", handlers=(events, feed))
