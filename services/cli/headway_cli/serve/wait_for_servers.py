"""How patient we are: with servers that are not there yet, and with the user not at all."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from headway_clock import monotonic
from headway_jetstream_kit import Broker
from headway_postgres_kit import Database, DatabaseUnavailable

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

_LONGEST_PAUSE = 2.0
_CLEAN_UP_SECONDS = 12.0


class Stopped(Exception):
    """A signal came before there was anything to stop."""


async def reach_database(url: str, *, name: str, wait: float) -> Database:
    """Connect to PostgreSQL, trying for so many seconds."""
    deadline, pause = monotonic() + wait, 0.2
    while True:
        try:
            return await Database.connect(url, name=name)
        except DatabaseUnavailable as error:
            if monotonic() + pause > deadline:
                raise
            logger.warning("PostgreSQL is not reachable: %s; trying again", error)
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)


async def reach_broker(url: str, *, name: str, credentials: str | None, wait: float) -> Broker:
    """Connect to NATS, trying for so many seconds."""
    # The client tries again by itself until its time is up; one try takes a moment.
    return await Broker.connect(url, name=name, credentials=credentials, timeout=max(1.0, wait))


async def unless_stopped(work: Coroutine[Any, Any, Result], stop: asyncio.Event) -> Result:
    """The work's result, or `Stopped` once it has cleaned up after itself."""
    task, asked = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({task, asked}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        asked.cancel()
    if task.done():
        return task.result()
    while not task.done():
        # Again after a while: up to Python 3.11 `asyncio.wait_for` can swallow a cancellation. But
        # not at once, for a second one would break off the cleaning up after the first.
        task.cancel()
        await asyncio.wait({task}, timeout=_CLEAN_UP_SECONDS)
    if task.cancelled() or task.exception() is not None:
        raise Stopped
    return task.result()
