"""Cancels tasks reliably."""

import asyncio
from collections.abc import Iterable
from typing import Any

from headway_clock import monotonic
from headway_tracing.log import get_logger

log = get_logger(__name__)


async def end(tasks: Iterable["asyncio.Task[Any]"], *, within: float = 10.0) -> None:
    """Cancel tasks and wait until they end; repeat the cancel where it was swallowed.

    Up to Python 3.11 `asyncio.wait_for`, which the NATS client uses, can swallow a cancellation
    that comes just as its wait ends. A task that does not end by the deadline is abandoned.
    """
    pending = set(tasks)
    deadline = monotonic() + within
    while pending and monotonic() < deadline:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=1)
    for task in pending:
        log.warning("task does not end after cancel", task=task.get_name())
