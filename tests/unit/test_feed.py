"""Followers of the feed: slow ones are dropped, and all are notified of its end."""

import asyncio
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from headway_console.feed import FeedEnded, Follower, News, Watcher
from headway_console.reading.events import EventFilter

NOW = datetime(2027, 3, 1, tzinfo=UTC)


def test_a_follower_that_does_not_keep_up_is_let_go_and_costs_no_more_memory():
    async def fall_behind() -> None:
        following = Follower(cast("Any", None), EventFilter())
        for number in range(100_000):
            following.notify(News([number], number, NOW))
        assert following._waiting.qsize() <= 200
        with pytest.raises(FeedEnded):
            await following.receive(1)

    asyncio.run(fall_behind())


def test_a_watcher_hears_of_many_changes_once_and_of_the_end_for_good():
    async def watch() -> None:
        watching = Watcher()
        for _ in range(1000):
            watching.notify()
        assert await watching.changed(1)
        assert not await watching.changed(0.001)
        await watching.pause(0.001)
        watching.notify(over=True)
        for wait in (watching.changed, watching.pause, watching.changed):
            with pytest.raises(FeedEnded):
                await wait(1)

    asyncio.run(watch())
