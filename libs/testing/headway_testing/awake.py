"""A core that does not fall asleep between two answers.

A moment of a world is a chain of some sixty short waits for PostgreSQL and NATS. Most answers
come sooner than an idle core wakes up, most of all in a virtual machine.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

_CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")


@asynccontextmanager
async def awake() -> AsyncIterator[None]:
    """Let the event loop look for answers all the time, where a core can be spared for that."""
    if _cores() < 2:
        yield
        return
    looking = asyncio.create_task(_look_all_the_time())
    try:
        yield
    finally:
        looking.cancel()


async def _look_all_the_time() -> None:
    while True:
        await asyncio.sleep(0)


def _cores() -> float:
    """How many cores there are for this process and its children."""
    try:
        present = len(os.sched_getaffinity(0))
    except AttributeError:  # where there is no affinity
        present = os.cpu_count() or 1
    return min(present, _limit(_CPU_LIMIT))


def _limit(told: Path) -> float:
    """How many cores a container may use, from what Linux says of it: `200000 100000` is two."""
    try:
        quota, period = told.read_text().split()
        return int(quota) / int(period)
    except (OSError, ValueError):  # not told, or `max`
        return float("inf")
