"""Ending tasks for sure."""

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

from headway_clock import monotonic

logger = logging.getLogger(__name__)


async def end(tasks: Iterable["asyncio.Task[Any]"], *, within: float = 10.0) -> None:
    """Cancel tasks and wait until they are gone; cancel again those that did not hear.

    Up to Python 3.11 `asyncio.wait_for`, which the NATS client uses, can swallow a
    cancellation that comes at the very moment when its wait is over. A task that will not
    end at all is left behind after the deadline.
    """
    pending = set(tasks)
    deadline = monotonic() + within
    while pending and monotonic() < deadline:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=1)
    for task in pending:
        logger.warning("%s does not end and is left behind", task.get_name())
