"""Connect to servers that may still be starting, and stop promptly on a signal."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from headway_clock import monotonic
from headway_jetstream_kit import Broker
from headway_postgres_kit import Database, DatabaseUnavailable
from headway_tracing.log import get_logger

log = get_logger(__name__)

Result = TypeVar("Result")

_LONGEST_PAUSE = 2.0
_CLEAN_UP_SECONDS = 12.0


class Stopped(Exception):
    """A signal came before the command had started."""


async def reach_database(url: str, *, name: str, wait: float) -> Database:
    """Connect to PostgreSQL; tries for `wait` seconds."""
    deadline, pause = monotonic() + wait, 0.2
    while True:
        try:
            return await Database.connect(url, name=name)
        except DatabaseUnavailable as error:
            if monotonic() + pause > deadline:
                raise
            log.warning("PostgreSQL not reachable; trying again", error=error)
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)


async def reach_broker(url: str, *, name: str, credentials: str | None, wait: float) -> Broker:
    """Connect to NATS; the client itself tries for `wait` seconds."""
    return await Broker.connect(url, name=name, credentials=credentials, timeout=max(1.0, wait))


async def unless_stopped(work: Coroutine[Any, Any, Result], stop: asyncio.Event) -> Result:
    """Return the result of the work; on a signal cancel it and raise `Stopped`."""
    task, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
    if task.done():
        return task.result()
    while not task.done():
        # Up to Python 3.11 `asyncio.wait_for` can swallow a cancellation, so it is repeated; but
        # not at once, because a second one would interrupt the clean-up after the first.
        task.cancel()
        await asyncio.wait({task}, timeout=_CLEAN_UP_SECONDS)
    if task.cancelled() or task.exception() is not None:
        raise Stopped
    return task.result()
