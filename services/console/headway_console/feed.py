"""The feed of events for API streams and open pages.

One task polls both histories for all subscribers, while there are any. Followers receive the
numbers of new events and read the events of their filter; a follower that falls behind is
disconnected, and continues where it was when it reconnects. Watchers, the open pages, only learn
that something changed, and reload.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from headway_clock import monotonic
from headway_errors import Invalid
from headway_history.store import Numbers
from headway_postgres_kit import DATABASE_CLOCK, Database, DatabaseUnavailable
from headway_tracing.log import get_logger
from msgspec import Struct

from headway_console.reading.events import (
    EventFilter,
    EventRow,
    begin_to_follow,
    new_numbers,
    read_pulse,
    read_these,
)

log = get_logger(__name__)

_LOOK_EVERY_SECONDS = 0.25
# Enough for open pages.
_GLANCE_EVERY_SECONDS = 1.0
_TRY_AGAIN_SECONDS = 2.0
_MOST_BEHIND = 200
# Replay for a follower that reconnects: in total, and in one batch.
_MOST_REPLAYED = 100_000
_REPLAYED_AT_ONCE = 5_000
# Each stream holds a connection and some memory.
_MOST_AT_ONCE = 1_000
# Keep-alive for proxies and clients of a quiet system.
_KEEP_ALIVE_SECONDS = 15.0


_LARGEST_NUMBER = 2**63 - 1
ASK_AGAIN_SECONDS = 2.0
# Returns whether the subscriber is still authorized.
GoesOn = Callable[[], Awaitable[bool]]


class News(Struct, frozen=True):
    """Numbers of new events, and the number below which none is missing."""

    numbers: list[int]
    settled: int
    at: datetime


class EventBatch(Struct, frozen=True):
    """Events, and the number below which all matching events were sent."""

    events: list[EventRow]
    settled: int | None


class FeedEnded(Exception):
    """The console stops, or the follower fell behind."""


class FeedFull(Exception):
    """The limit of open streams is reached."""


class Watching:
    """A subscriber that only learns that something changed."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self._ended = asyncio.Event()

    def notify(self, *, over: bool = False) -> None:
        """Signal a change, or the end of the feed."""
        if over:
            self._ended.set()
        self._changed.set()

    async def changed(self, within: float) -> bool:
        """Wait for a change since the last call; returns false after `within` seconds.

        Raises `FeedEnded` at the end of the feed.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._changed.wait()
        if self._ended.is_set():
            raise FeedEnded
        changed = self._changed.is_set()
        self._changed.clear()
        return changed

    async def pause(self, seconds: float) -> None:
        """Sleep; changes meanwhile are reported by the next `changed`.

        Raises `FeedEnded` at the end of the feed.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended.wait()
                raise FeedEnded


class Following:
    """A subscriber that receives events of a filter."""

    def __init__(self, database: Database, filters: EventFilter) -> None:
        self._database = database
        self._filters = filters
        self._waiting: asyncio.Queue[News | None] = asyncio.Queue(_MOST_BEHIND)
        self._lost = False

    def notify(self, news: News | None) -> None:
        """Queue news; `None` is the end of the feed."""
        if self._waiting.full():
            self._lost = True
            return
        self._waiting.put_nowait(news)

    async def receive(self, within: float) -> EventBatch | None:
        """Return the matching events among the news, or `None` without news.

        Raises `FeedEnded` at the end of the feed, or if news was lost.
        """
        try:
            async with asyncio.timeout(within):
                news = await self._waiting.get()
        except TimeoutError:
            return None
        if news is None or self._lost:
            raise FeedEnded
        async with self._database.acquire() as connection:
            events = await read_these(connection, news.numbers, self._filters, now=news.at)
        return EventBatch(events, news.settled)


class Feed:
    """Polls for new events while there are subscribers."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._followers: set[Following] = set()
        self._watchers: set[Watching] = set()
        self._pulse: tuple[Any, ...] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._numbers: Numbers | None = None
        self._ended = False

    @property
    def followers(self) -> int:
        """Return the number of followers."""
        return len(self._followers)

    async def ready(self) -> None:
        """Raise `FeedFull` or `DatabaseUnavailable` before the response starts."""
        self._refuse_too_many()
        await self._begin()

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[Watching]:
        """Subscribe to changes."""
        self._refuse_too_many()
        watching = Watching()
        self._watchers.add(watching)
        try:
            await self._begin()
            if self._ended:
                watching.notify(over=True)
            yield watching
        finally:
            self._watchers.discard(watching)

    @asynccontextmanager
    async def follow(self, filters: EventFilter, *, after: int | None) -> AsyncIterator[Following]:
        """Subscribe to events from now on, or after a number."""
        self._refuse_too_many()
        following = Following(self._database, filters)
        numbers, now = await self._begin()
        # Without an await until it is added, so that no news is missed.
        until = numbers.highest
        reached = until if after is None else max(after, until - _MOST_REPLAYED)
        while reached < until:
            begin, reached = reached + 1, min(until, reached + _REPLAYED_AT_ONCE)
            following.notify(News(list(range(begin, reached + 1)), reached, now))
        self._followers.add(following)
        if self._ended:
            following.notify(None)
        try:
            yield following
        finally:
            self._followers.discard(following)

    async def stop(self) -> None:
        """End all streams."""
        self._ended = True
        for following in self._followers:
            following.notify(None)
        for watching in self._watchers:
            watching.notify(over=True)
        if self._looking is not None:
            self._looking.cancel()

    def _refuse_too_many(self) -> None:
        if len(self._followers) + len(self._watchers) >= _MOST_AT_ONCE:
            raise FeedFull(f"{_MOST_AT_ONCE} streams are open: close some, or try again later")

    async def _begin(self) -> tuple[Numbers, datetime]:
        """Start to poll unless running; returns the known numbers and the time."""
        async with self._database.acquire() as connection:
            now = await DATABASE_CLOCK.now(connection)
            fresh = await begin_to_follow(connection, now=now)
        if self._numbers is None or self._looking is None or self._looking.done():
            self._numbers, self._pulse = fresh, None
            self._looking = asyncio.create_task(self._look_on(self._numbers), name="console-feed")
        return self._numbers, now

    async def _look_on(self, numbers: Numbers) -> None:
        """Poll until there are no subscribers."""
        pause = _LOOK_EVERY_SECONDS
        while True:
            await asyncio.sleep(pause)
            if not self._followers and not self._watchers:
                return
            try:
                await self._look(numbers)
                pause = _LOOK_EVERY_SECONDS if self._followers else _GLANCE_EVERY_SECONDS
            except DatabaseUnavailable as error:
                log.warning("event feed interrupted", error=error)
                pause = _TRY_AGAIN_SECONDS

    async def _look(self, numbers: Numbers) -> None:
        async with self._database.acquire() as connection:
            now = await DATABASE_CLOCK.now(connection)
            new = await new_numbers(connection, numbers, now=now, elapsed=monotonic())
            pulse = await read_pulse(connection) if self._watchers else self._pulse
        if new:
            for following in self._followers:
                following.notify(News(new, numbers.settled, now))
        if new or pulse != self._pulse:
            for watching in self._watchers:
                watching.notify()
        self._pulse = pulse


async def follow_events(
    feed: Feed, filters: EventFilter, *, after: int | None, goes_on: GoesOn, seconds: float
) -> AsyncGenerator[EventBatch]:
    """Yield events for at most `seconds`, while the subscriber is authorized.

    The first batch is empty, and so are keep-alives.
    """
    until = monotonic() + seconds
    async with feed.follow(filters, after=after) as following:
        silent_since, batch = monotonic(), EventBatch([], after)
        yield batch
        while monotonic() < until and await goes_on():
            try:
                batch = await following.receive(ASK_AGAIN_SECONDS) or EventBatch([], batch.settled)
            except (FeedEnded, DatabaseUnavailable):
                return  # the client reconnects and continues, or learns why not
            if batch.events or monotonic() - silent_since >= _KEEP_ALIVE_SECONDS:
                silent_since = monotonic()
                yield batch


def event_number(given: str, name: str) -> int:
    """Parse the number of an event; raises `Invalid`."""
    if not given.isascii() or not given.isdigit() or int(given) > _LARGEST_NUMBER:
        raise Invalid(f"{name}: expected the number of an event")
    return int(given)
