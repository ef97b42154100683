"""Verify: are the tables what history says they should be?

Everything is read in one snapshot of the database, so the services may go on meanwhile, and a
page of work at a time, so the answer needs no more memory for more work. What the snapshot
costs is that PostgreSQL cannot clean up behind it while it is open.
"""

from collections.abc import Callable
from datetime import datetime
from uuid import UUID

from headway_clock import monotonic
from headway_history import Difference, compare
from headway_history.rows import WorkRows
from headway_postgres_kit import Database
from msgspec import Struct

from headway_dispatcher.history.pages import FIRST, Gone, Page, read_gone, read_page

# More than a person reads; the rest is only counted.
MOST_TOLD = 1000


class Verified(Struct, kw_only=True):
    """What a comparison came to."""

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
    """Compare all tables with history, on a system that may well be running."""
    began = monotonic()
    verified = Verified()
    async with (
        database.acquire() as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        gone = await read_gone(connection)
        above = FIRST
        while (page := await read_page(connection, above)) is not None:
            _add(verified, page, gone)
            verified.seconds = monotonic() - began
            on_page(verified)
            above = page.up_to
    return verified


def differences(page: Page, gone: Gone) -> list[Difference]:
    """All differences of a page."""
    found: list[Difference] = []
    for work in page.works:
        expected = page.expected.get(work, WorkRows())
        there = page.found.get(work, WorkRows())
        expected = gone.without_purged(expected, there.letters)
        found += compare(expected, there, absence=gone.absence(expected, there))
    found += [_dead(lease, ended_at) for lease, ended_at in sorted(page.dead_leases.items())]
    return found


def _dead(lease: UUID, ended_at: datetime | None) -> Difference:
    """A lease that should be open, because a run under it is live."""
    if ended_at is None:
        return Difference(table="lease", row=lease, kind="missing")
    return Difference(table="lease", row=lease, kind="different", column="ended_at", found=ended_at)


def _add(verified: Verified, page: Page, gone: Gone) -> None:
    found = differences(page, gone)
    verified.works += sum(one.work is not None for one in page.found.values())
    verified.runs += sum(len(one.runs) for one in page.found.values())
    verified.dead_letters += sum(len(one.letters) for one in page.found.values())
    verified.events += page.events
    verified.differing += len(found)
    verified.differences += found[: MOST_TOLD - len(verified.differences)]
