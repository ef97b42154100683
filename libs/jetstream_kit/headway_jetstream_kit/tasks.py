"""Ending tasks for sure."""

import asyncio
from collections.abc import Iterable
from typing import Any


async def end(tasks: Iterable["asyncio.Task[Any]"]) -> None:
    """Cancel tasks and wait until they are gone; cancel again those that did not hear.

    Up to Python 3.11 `asyncio.wait_for`, which the NATS client uses, can swallow a
    cancellation that comes at the very moment when its wait is over.
    """
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=1)
