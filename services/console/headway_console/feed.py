"""What happens, told to everybody who follows it.

One look at both histories for all of them, and only while there is anybody. Followers hear which
events are new, and each reads those that it asked for; a follower that does not keep up is let go
rather than waited for, and comes back where it was. Watchers, which are open pages, hear only that
something was written down, and ask for what they show again.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime

from headway_clock import monotonic
from headway_history.numbers import Numbers
from headway_postgres_kit import DATABASE_CLOCK, Database, DatabaseUnavailable
from msgspec import Struct

from headway_console.reading.events import (
    EventFilter,
    EventRow,
    begin_to_follow,
    new_numbers,
    read_these,
)
from headway_console.reading.pulse import Pulse, read_pulse

logger = logging.getLogger(__name__)

_LOOK_EVERY_SECONDS = 0.25
# For those who only watch: a page that is fresh every second is fresh.
_GLANCE_EVERY_SECONDS = 1.0
_TRY_AGAIN_SECONDS = 2.0
_MOST_BEHIND = 200
# How much of the past one who comes back may hear of, and how much of it at once.
_MOST_REPLAYED = 100_000
_REPLAYED_AT_ONCE = 5_000
# Each has a connection and a little memory of ours.
_MOST_AT_ONCE = 1_000
# A sign of life, so that proxies and clients do not take a quiet system for a dead one.
_SIGN_OF_LIFE_SECONDS = 15.0


class News(Struct, frozen=True):
    """Numbers of new events, and up to where nothing is missing any more."""

    numbers: list[int]
    settled: int
    at: datetime


class Told(Struct, frozen=True):
    """Events, and up to which number all that was asked for is told."""

    events: list[EventRow]
    settled: int | None


# Whether somebody may still hear: they may have signed out, or their token may be over.
GoesOn = Callable[[], Awaitable[bool]]
ASK_AGAIN_SECONDS = 2.0


class FeedEnded(Exception):
    """There is nothing more to hear: the console stops, or the follower has not kept up."""


class FeedFull(Exception):
    """So many follow that one more would be at the cost of the others."""


class Watching:
    """One who hears that something was written down, but not what."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self._ended = asyncio.Event()

    def tell(self, *, over: bool = False) -> None:
        """Say that there is something new, or that it is over."""
        if over:
            self._ended.set()
        self._changed.set()

    async def changed(self, within: float) -> bool:
        """Whether something was written down since this was asked last; waits for it.

        Raises `FeedEnded` once there is nothing more.
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
        """Do nothing for a while; what is written down meanwhile is told afterwards.

        Raises `FeedEnded` once there is nothing more.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended.wait()
                raise FeedEnded


class Following:
    """One follower."""

    def __init__(self, database: Database, asked: EventFilter) -> None:
        self._database = database
        self._asked = asked
        self._waiting: asyncio.Queue[News | None] = asyncio.Queue(_MOST_BEHIND)
        self._lost = False

    def tell(self, news: News | None) -> None:
        """Say what is new, or that it is over."""
        if self._waiting.full():
            self._lost = True
            return
        self._waiting.put_nowait(news)

    async def hear(self, within: float) -> tuple[list[EventRow], int] | None:
        """Events that were asked for and up to where all is told; none if there was no news.

        Raises `FeedEnded` once there is nothing more, or news was lost.
        """
        try:
            async with asyncio.timeout(within):
                news = await self._waiting.get()
        except TimeoutError:
            return None
        if news is None or self._lost:
            raise FeedEnded
        async with self._database.acquire() as connection:
            return await read_these(
                connection, news.numbers, self._asked, now=news.at
            ), news.settled


class Feed:
    """Looks for news as long as anybody follows."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._followers: set[Following] = set()
        self._watchers: set[Watching] = set()
        self._pulse: Pulse | None = None
        self._looking: asyncio.Task[None] | None = None
        self._numbers: Numbers | None = None
        self._ended = False

    @property
    def followers(self) -> int:
        """How many follow now."""
        return len(self._followers)

    async def ready(self) -> None:
        """Raise `FeedFull` or `DatabaseUnavailable` while it can still be answered with."""
        self._refuse_too_many()
        await self._begin()

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[Watching]:
        """Hear whenever something is written down."""
        self._refuse_too_many()
        watching = Watching()
        self._watchers.add(watching)
        try:
            await self._begin()
            if self._ended:
                watching.tell(over=True)
            yield watching
        finally:
            self._watchers.discard(watching)

    @asynccontextmanager
    async def follow(self, asked: EventFilter, *, after: int | None) -> AsyncIterator[Following]:
        """Hear of everything from now on, or after a number that was heard of before."""
        self._refuse_too_many()
        following = Following(self._database, asked)
        numbers, now = await self._begin()
        # Without a pause in between, so that no news passes by while it catches up.
        if after is not None:
            _catch_up(following, max(after, numbers.highest - _MOST_REPLAYED), numbers.highest, now)
        self._followers.add(following)
        if self._ended:
            following.tell(None)
        try:
            yield following
        finally:
            self._followers.discard(following)

    async def stop(self) -> None:
        """End all followers' streams."""
        self._ended = True
        for following in self._followers:
            following.tell(None)
        for watching in self._watchers:
            watching.tell(over=True)
        if self._looking is not None:
            self._looking.cancel()

    def _refuse_too_many(self) -> None:
        if len(self._followers) + len(self._watchers) >= _MOST_AT_ONCE:
            raise FeedFull(f"{_MOST_AT_ONCE} streams are open: close some, or try again later")

    async def _begin(self) -> tuple[Numbers, datetime]:
        """Look for news if nobody does yet; returns what was seen, and the time."""
        async with self._database.acquire() as connection:
            now = await DATABASE_CLOCK.now(connection)
            fresh = await begin_to_follow(connection, now=now)
        if self._numbers is None or self._looking is None or self._looking.done():
            self._numbers, self._pulse = fresh, None
            self._looking = asyncio.create_task(self._look_on(self._numbers), name="console-feed")
        return self._numbers, now

    async def _look_on(self, numbers: Numbers) -> None:
        """Look for news until nobody follows any more."""
        pause = _LOOK_EVERY_SECONDS
        while True:
            await asyncio.sleep(pause)
            if not self._followers and not self._watchers:
                return
            try:
                await self._look(numbers)
                pause = _LOOK_EVERY_SECONDS if self._followers else _GLANCE_EVERY_SECONDS
            except DatabaseUnavailable as error:
                logger.warning("no news: %s", error)
                pause = _TRY_AGAIN_SECONDS

    async def _look(self, numbers: Numbers) -> None:
        async with self._database.acquire() as connection:
            now = await DATABASE_CLOCK.now(connection)
            new = await new_numbers(connection, numbers, now=now, elapsed=monotonic())
            pulse = await read_pulse(connection) if self._watchers else self._pulse
        if new:
            for following in self._followers:
                following.tell(News(new, numbers.settled, now))
        if new or pulse != self._pulse:
            for watching in self._watchers:
                watching.tell()
        self._pulse = pulse


async def told(
    feed: Feed, asked: EventFilter, *, after: int | None, goes_on: GoesOn, seconds: float
) -> AsyncGenerator[Told]:
    """What one follower is told, for so many seconds at most and only while it `goes_on`.

    The first is empty, and so is a sign of life while nothing happens.
    """
    until = monotonic() + seconds
    async with feed.follow(asked, after=after) as following:
        silent_since, settled = monotonic(), after
        yield Told([], settled)
        while monotonic() < until and await goes_on():
            try:
                heard = await following.hear(ASK_AGAIN_SECONDS)
            except (FeedEnded, DatabaseUnavailable):
                return  # whoever comes back is told why, or goes on
            events, settled = heard or ([], settled)
            if events or monotonic() - silent_since >= _SIGN_OF_LIFE_SECONDS:
                silent_since = monotonic()
                yield Told(events, settled)


def _catch_up(following: Following, after: int, until: int, now: datetime) -> None:
    """Let a follower hear of what came after a number, up to what the others have heard."""
    while after < until:
        upto = min(until, after + _REPLAYED_AT_ONCE)
        following.tell(News(list(range(after + 1, upto + 1)), upto, now))
        after = upto
