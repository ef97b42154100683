"""What happens, told to everybody who follows it.

One look at history for all of them, and only while there is anybody: which events are new. Each
follower then reads those that it asked for. A follower that does not keep up is let go rather than
waited for, and comes back where it was.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
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

logger = logging.getLogger(__name__)

_LOOK_EVERY_SECONDS = 0.25
_TRY_AGAIN_SECONDS = 2.0
_MOST_BEHIND = 200
# How much of the past one who comes back may hear of, and how much of it at once.
_MOST_REPLAYED = 100_000
_REPLAYED_AT_ONCE = 5_000


class News(Struct, frozen=True):
    """Numbers of new events, and up to where nothing is missing any more."""

    numbers: list[int]
    settled: int
    at: datetime


class FeedEnded(Exception):
    """There is nothing more to hear: the console stops, or the follower has not kept up."""


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
        self._looking: asyncio.Task[None] | None = None
        self._numbers: Numbers | None = None
        self._ended = False

    @property
    def followers(self) -> int:
        """How many follow now."""
        return len(self._followers)

    @asynccontextmanager
    async def follow(self, asked: EventFilter, *, after: int | None) -> AsyncIterator[Following]:
        """Hear of everything from now on, or after a number that was heard of before."""
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
        if self._looking is not None:
            self._looking.cancel()

    async def _begin(self) -> tuple[Numbers, datetime]:
        """Look for news if nobody does yet; returns what was seen, and the time."""
        async with self._database.acquire() as connection:
            now = await DATABASE_CLOCK.now(connection)
            fresh = await begin_to_follow(connection, now=now)
        if self._numbers is None or self._looking is None or self._looking.done():
            self._numbers = fresh
            self._looking = asyncio.create_task(self._look_on(self._numbers), name="console-feed")
        return self._numbers, now

    async def _look_on(self, numbers: Numbers) -> None:
        """Look for news until nobody follows any more."""
        pause = _LOOK_EVERY_SECONDS
        while True:
            await asyncio.sleep(pause)
            if not self._followers:
                return
            try:
                await self._look(numbers)
                pause = _LOOK_EVERY_SECONDS
            except DatabaseUnavailable as error:
                logger.warning("no news: %s", error)
                pause = _TRY_AGAIN_SECONDS

    async def _look(self, numbers: Numbers) -> None:
        async with self._database.acquire() as connection:
            now = await DATABASE_CLOCK.now(connection)
            new = await new_numbers(connection, numbers, now=now, elapsed=monotonic())
        if new:
            for following in self._followers:
                following.tell(News(new, numbers.settled, now))


def _catch_up(following: Following, after: int, until: int, now: datetime) -> None:
    """Let a follower hear of what came after a number, up to what the others have heard."""
    while after < until:
        upto = min(until, after + _REPLAYED_AT_ONCE)
        following.tell(News(list(range(after + 1, upto + 1)), upto, now))
        after = upto
