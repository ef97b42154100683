"""Server-sent events: what happens, as it happens.

Each message is one event of history in JSON. Its `id` is a number up to which nothing is missing:
whoever comes back with it as Last-Event-ID hears everything after it, some perhaps again.
"""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any
from uuid import UUID

import msgspec
from headway_contract.control import Text
from headway_contract.http import InvalidRequest
from headway_contract.routes import SYSTEM, Route
from headway_contract.work import Name
from litestar import Request
from litestar.response import Stream
from msgspec import Meta, Struct

from headway_console.access.guards import still_authorized
from headway_console.api.endpoints import Endpoint
from headway_console.feed import Feed, GoesOn, follow_events
from headway_console.reading.events import EventFilter, EventRow

# Then clients come back by themselves, and are asked again who they are.
_LONGEST_SECONDS = 3600.0
_LAST_EVENT_ID = "last-event-id"
_LARGEST = 2**63 - 1

Types = Annotated[tuple[Text, ...], Meta(max_length=50)]


class FollowQuestion(Struct, frozen=True, kw_only=True):
    """Which events to tell; what is left out does not matter. Types as in run.completed, run.*."""

    type: Types = ()
    manifest: Text | None = None
    group: Name | None = None
    job: Name | None = None
    work: UUID | None = None
    run: UUID | None = None


async def _follow(request: Request[Any, Any, Any], asked: FollowQuestion) -> Stream:
    wanted = EventFilter(
        types=asked.type,
        manifest=asked.manifest,
        group=asked.group,
        job=asked.job,
        work=asked.work,
        run=asked.run,
    )
    after = _read_id(request.headers.get(_LAST_EVENT_ID))
    feed: Feed = request.app.state.feed
    await feed.ready()
    return Stream(
        messages(feed, wanted, after, still_authorized(request)),
        media_type="text/event-stream",
        headers={"X-Accel-Buffering": "no"},
    )


async def messages(
    feed: Feed, asked: EventFilter, after: int | None, goes_on: GoesOn
) -> AsyncIterator[bytes]:
    """The stream, until the client goes away or may not hear it, or the console stops."""
    heard = follow_events(feed, asked, after=after, goes_on=goes_on, seconds=_LONGEST_SECONDS)
    async with aclosing(heard):
        async for one in heard:
            yield _written(one.events, one.settled)


def _written(events: list[EventRow], settled: int | None) -> bytes:
    """Messages; the number stands behind all of them, for only then none of them is missing.

    Without events it is a comment, with the number: what is read past need not be read again.
    """
    number = b"" if settled is None else b"id: %d\n" % settled
    if not events:
        return b": still here\n%s\n" % number
    before = b"".join(b"data: " + msgspec.json.encode(one) + b"\n\n" for one in events[:-1])
    return before + b"%sdata: %s\n\n" % (number, msgspec.json.encode(events[-1]))


def _read_id(given: str | None) -> int | None:
    if not given:
        return None
    if not given.isascii() or not given.isdigit() or int(given) > _LARGEST:
        raise InvalidRequest("Last-Event-ID: it is the id of an event of this stream, a number")
    return int(given)


STREAM = Endpoint(
    route=Route(
        name="follow_events",
        method="GET",
        path="/events/stream",
        role="viewer",
        tag=SYSTEM,
        summary="What happens, as server-sent events; Last-Event-ID goes on where one was.",
        question=FollowQuestion,
        answer=EventRow,
    ),
    answered=_follow,
    streams=True,
)
