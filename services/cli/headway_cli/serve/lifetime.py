"""The life of a process: it stops at a signal, also while it starts, and exports its spans."""

import asyncio
import os
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import click
from headway_service_kit.telemetry import start_exporting

Result = TypeVar("Result")

_CLEAN_UP_SECONDS = 12.0
_EXPORT_SECONDS = 2.0


class Stopped(click.Abort):
    """A signal came before the command had started."""


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
        raise Stopped("stopped before it had started")
    return task.result()


async def wait_for_stop(stop: asyncio.Event, seconds: float) -> None:
    """Wait for the event, at most this long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()


@contextmanager
def exporting(service: str) -> Iterator[None]:
    """Export spans while the body runs, if an endpoint is configured."""
    provider = start_exporting(service, os.environ)
    try:
        yield
    finally:
        if provider is not None:
            # In a thread: a collector that does not answer must not delay the exit.
            closing = threading.Thread(target=provider.shutdown, daemon=True)
            closing.start()
            closing.join(_EXPORT_SECONDS)
