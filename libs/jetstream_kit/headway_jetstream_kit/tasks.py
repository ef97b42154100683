"""Cancels tasks reliably."""

import asyncio
from collections.abc import Iterable
from typing import Any

from headway_clock import monotonic
from headway_tracing.log import get_logger

log = get_logger(__name__)


async def end(tasks: Iterable["asyncio.Task[Any]"], *, within: float = 10.0) -> None:
    """Cancel tasks and wait until they end; abandon those that do not end by the deadline.

    The cancel is repeated: up to Python 3.11 `asyncio.wait_for`, which the NATS client uses, can
    swallow a cancellation that arrives just as its wait ends.
    """
    pending = set(tasks)
    deadline = monotonic() + within
    while pending and monotonic() < deadline:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=1)
    for task in pending:
        log.warning("task does not end after cancel", task=task.get_name())
