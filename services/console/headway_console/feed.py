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

from headway_console.reading import events as history
from headway_console.reading.events import EventFilter, EventRow

log = get_logger(__name__)

_POLL_SECONDS = 0.25
# Enough for open pages.
_POLL_FOR_PAGES_SECONDS = 1.0
_RETRY_SECONDS = 2.0
_MAX_QUEUED = 200
# Replay for a follower that reconnects: in total, and in one batch.
_MAX_REPLAYED = 100_000
_REPLAY_BATCH = 5_000
# Each stream holds a connection and some memory.
_MAX_STREAMS = 1_000
# Keep-alive for proxies and clients of a quiet system.
_KEEP_ALIVE_SECONDS = 15.0
_LARGEST_NUMBER = 2**63 - 1
RECHECK_SECONDS = 2.0


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


class Watcher:
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
        """Wait at most so long for a change since the last call; raises `FeedEnded`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._changed.wait()
        if self._ended.is_set():
            raise FeedEnded
        changed = self._changed.is_set()
        self._changed.clear()
        return changed

    async def pause(self, seconds: float) -> None:
        """Sleep, and keep changes for the next `changed`; raises `FeedEnded`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended.wait()
                raise FeedEnded


class Follower:
    """A subscriber that receives events of a filter."""

    def __init__(self, database: Database, filters: EventFilter) -> None:
        self._database = database
        self._filters = filters
        self._waiting: asyncio.Queue[News | None] = asyncio.Queue(_MAX_QUEUED)
        self._lost = False

    def notify(self, news: News | None) -> None:
        """Queue news; `None` is the end of the feed."""
        if self._waiting.full():
            self._lost = True
            return
        self._waiting.put_nowait(news)

    async def receive(self, within: float) -> EventBatch | None:
        """Return matching events, or `None` without news; raises `FeedEnded`, also after a loss."""
        try:
            async with asyncio.timeout(within):
                news = await self._waiting.get()
        except TimeoutError:
            return None
        if news is None or self._lost:
            raise FeedEnded
        async with self._database.acquire() as connection:
            events = await history.read_events(connection, news.numbers, self._filters, now=news.at)
        return EventBatch(events, news.settled)


class Feed:
    """Polls for new events while there are subscribers."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._followers: set[Follower] = set()
        self._watchers: set[Watcher] = set()
        self._pulse: Any = None
        self._polling: asyncio.Task[None] | None = None
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
    async def watch(self) -> AsyncIterator[Watcher]:
        """Subscribe to changes."""
        self._refuse_too_many()
        watcher = Watcher()
        self._watchers.add(watcher)
        try:
            await self._begin()
            if self._ended:
                watcher.notify(over=True)
            yield watcher
        finally:
            self._watchers.discard(watcher)

    @asynccontextmanager
    async def follow(self, filters: EventFilter, *, after: int | None) -> AsyncIterator[Follower]:
        """Subscribe to events from now on, or after a number."""
        self._refuse_too_many()
        follower = Follower(self._database, filters)
        numbers, now = await self._begin()
        # Without an await until it is added, so that no news is missed.
        until = numbers.highest
        reached = until if after is None else max(after, until - _MAX_REPLAYED)
        while reached < until:
            begin, reached = reached + 1, min(until, reached + _REPLAY_BATCH)
            follower.notify(News(list(range(begin, reached + 1)), reached, now))
        self._followers.add(follower)
        if self._ended:
            follower.notify(None)
        try:
            yield follower
        finally:
            self._followers.discard(follower)

    async def stop(self) -> None:
        """End all streams."""
        self._ended = True
        for follower in self._followers:
            follower.notify(None)
        for watcher in self._watchers:
            watcher.notify(over=True)
        if self._polling is not None:
            self._polling.cancel()

    def _refuse_too_many(self) -> None:
        if len(self._followers) + len(self._watchers) >= _MAX_STREAMS:
            raise FeedFull(f"{_MAX_STREAMS} streams are open: close some, or try again later")

    async def _begin(self) -> tuple[Numbers, datetime]:
        """Start to poll unless running; returns the known numbers and the time."""
        async with self._database.acquire() as connection:
            now = await DATABASE_CLOCK.now(connection)
            fresh = await history.read_position(connection, now=now)
        if self._numbers is None or self._polling is None or self._polling.done():
            self._numbers, self._pulse = fresh, None
            self._polling = asyncio.create_task(
                self._poll_while_needed(self._numbers), name="console-feed"
            )
        return self._numbers, now

    async def _poll_while_needed(self, numbers: Numbers) -> None:
        """Poll until there are no subscribers."""
        pause = _POLL_SECONDS
        while True:
            await asyncio.sleep(pause)
            if not self._followers and not self._watchers:
                return
            try:
                await self._poll(numbers)
                pause = _POLL_SECONDS if self._followers else _POLL_FOR_PAGES_SECONDS
            except DatabaseUnavailable as error:
                log.warning("event feed interrupted", error=error)
                pause = _RETRY_SECONDS

    async def _poll(self, numbers: Numbers) -> None:
        async with self._database.acquire() as connection:
            now = await DATABASE_CLOCK.now(connection)
            new = await history.new_numbers(connection, numbers, now=now, elapsed=monotonic())
            pulse = await history.read_pulse(connection) if self._watchers else self._pulse
        if new:
            for follower in self._followers:
                follower.notify(News(new, numbers.settled, now))
        if new or pulse != self._pulse:
            for watcher in self._watchers:
                watcher.notify()
        self._pulse = pulse


async def follow_events(
    feed: Feed,
    filters: EventFilter,
    *,
    after: int | None,
    is_authorized: Callable[[], Awaitable[bool]],
    seconds: float,
) -> AsyncGenerator[EventBatch]:
    """Yield events while authorized; the first batch is empty, and so are keep-alives."""
    until = monotonic() + seconds
    async with feed.follow(filters, after=after) as follower:
        silent_since, batch = monotonic(), EventBatch([], after)
        yield batch
        while monotonic() < until and await is_authorized():
            try:
                batch = await follower.receive(RECHECK_SECONDS) or EventBatch([], batch.settled)
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
