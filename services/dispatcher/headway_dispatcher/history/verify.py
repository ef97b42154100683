"""Verify: compare the tables with history.

Everything is read in one snapshot of the database, so the services may run meanwhile, and by pages
of work, so memory does not grow with the work. While the snapshot is open, PostgreSQL cannot vacuum
rows that were deleted after it.
"""

import asyncio
import gc
from collections.abc import Callable

from headway_clock import monotonic
from headway_history import Difference, compare
from headway_history.rows import WorkRows
from headway_jetstream_kit.tasks import end
from headway_postgres_kit import Connection, Database
from msgspec import Struct

from headway_dispatcher.history.pages import FIRST, Gone, Page, read_gone, read_page
from headway_dispatcher.store import HISTORY

# More than a person reads; further differences are only counted.
MOST_LISTED = 1000


class Verified(Struct, kw_only=True):
    """The result of a comparison."""

    works: int = 0
    runs: int = 0
    dead_letters: int = 0
    events: int = 0
    differing: int = 0
    differences: list[Difference] = []
    seconds: float = 0.0


async def verify(
    database: Database, *, on_page: Callable[[Verified], None] = lambda _: None
) -> Verified:
    """Compare all tables with history; the services may run."""
    # Pages are not part of reference cycles, and collections took a third of the time.
    gc.freeze()
    gc.disable()
    try:
        async with database.snapshot() as connection:
            return await _compare_pages(connection, on_page)
    finally:
        gc.enable()
        gc.unfreeze()


async def _compare_pages(connection: Connection, on_page: Callable[[Verified], None]) -> Verified:
    began = monotonic()
    verified = Verified()
    gone = await read_gone(connection)
    packed = await HISTORY.packed(connection)
    reading = asyncio.create_task(read_page(connection, FIRST, packed))
    try:
        while (page := await reading) is not None:
            # PostgreSQL reads the next page meanwhile.
            reading = asyncio.create_task(read_page(connection, page.up_to, packed))
            await page.fold()
            found = differences(page, gone)
            rows = page.found.values()
            verified.works += sum(row.work is not None for row in rows)
            verified.runs += sum(len(row.runs) for row in rows)
            verified.dead_letters += sum(len(row.letters) for row in rows)
            verified.events += sum(map(len, page.events.values()))
            verified.differing += len(found)
            verified.differences += found[: MOST_LISTED - len(verified.differences)]
            verified.seconds = monotonic() - began
            on_page(verified)
    finally:
        await end([reading])
    return verified


def differences(page: Page, gone: Gone) -> list[Difference]:
    """Return all differences of a page."""
    found: list[Difference] = []
    for work in page.works:
        actual = page.found.get(work, WorkRows())
        expected = gone.without_purged(page.expected.get(work, WorkRows()), actual.letters)
        found += compare(expected, actual, absence=gone.absence(expected, actual))
    found += [
        Difference(table="lease", row=lease, kind="missing")
        if ended_at is None
        else Difference(
            table="lease", row=lease, kind="different", column="ended_at", found=ended_at
        )
        for lease, ended_at in sorted(page.dead_leases.items())
    ]
    return found
