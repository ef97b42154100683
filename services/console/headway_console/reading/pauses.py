"""Pauses in force."""

from typing import Any

from headway_contract.manifests import PauseStatus
from headway_decisions.firing.pauses import covers_text
from headway_postgres_kit import Connection, Queries

from headway_console.reading.lists import Listing, Page, read_row

queries = Queries("headway_console.reading", "sql/pauses.sql")

_PAUSES = Listing("pauses", None)


async def page_of_pauses(
    connection: Connection, *, of_all: bool = False, cursor: str | None = None, limit: int = 100
) -> Page[PauseStatus]:
    """List the pauses in force, the oldest first."""
    _, last = _PAUSES.time_and_id(cursor)
    rows = await connection.fetch(queries["page"], last, of_all, limit + 1)
    return _PAUSES.page(rows, limit, _pause)


async def list_pauses_of_all(connection: Connection) -> list[PauseStatus]:
    """List the pauses in force that cover all manifests."""
    return (await page_of_pauses(connection, of_all=True)).items


async def count_manifests(connection: Connection) -> int:
    """Return the number of manifests that a pause of all covers now."""
    number: int = await connection.fetchval(queries["coverable"])
    return number


def _pause(row: Any) -> PauseStatus:
    covers = covers_text(row["manifests"], row["group_name"], row["labels"])
    return read_row(PauseStatus, row, covers=covers, manifests=row["manifests"] or [])
