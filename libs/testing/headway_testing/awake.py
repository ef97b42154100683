"""A core that does not fall asleep between two answers.

A moment of a world is a chain of some sixty short waits for PostgreSQL and NATS. Most answers
come sooner than an idle core wakes up, most of all in a virtual machine. Where others want the
cores, looking for answers all the time would only keep away those that give them.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import thread_time

from headway_clock import monotonic

# So many looks take some ten milliseconds, which shows well enough whether others want the core.
_LOOKS = 2000
# We have it to ourselves if we get so much of it; else it is left alone for so many seconds.
_OURS, _REST_SECONDS = 0.75, 0.5


@asynccontextmanager
async def awake() -> AsyncIterator[None]:
    """Let the event loop look for answers all the time, as long as it keeps nobody away."""
    looking = asyncio.create_task(_look())
    try:
        yield
    finally:
        looking.cancel()


async def _look() -> None:
    while True:
        began_at, used = monotonic(), thread_time()
        for _ in range(_LOOKS):
            await asyncio.sleep(0)
        if thread_time() - used < _OURS * (monotonic() - began_at):
            await asyncio.sleep(_REST_SECONDS)
