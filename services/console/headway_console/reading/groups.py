"""Groups: limits, active runs and waiting work."""

from collections import defaultdict
from datetime import datetime
from typing import Any

import msgspec
from headway_contract.fields import Name, Rate
from headway_contract.operations import GroupOccupancy, GroupStatus
from headway_decisions.declaring.ownership import group_owners, read_group
from headway_postgres_kit import Connection, Queries

from headway_console.reading.lists import Listing, Page, read_row
from headway_console.reading.works import read_waiting

queries = Queries("headway_console.reading", "sql/groups.sql")

_GROUPS = Listing("groups", None, "name")


class GroupRow(GroupStatus, frozen=True, kw_only=True):
    """A group; `active` counts slots in use, `waiting` work by reason; `frees_at` ends the rate."""

    owner: str | None
    frees_at: datetime | None
    disabled: int
    blocked: int
    next_due_at: datetime | None
    active: int
    pending: int
    in_progress: int
    waiting: dict[str, int]
    dead_letters: int


async def page_of_groups(
    connection: Connection, *, name: Name | None = None, cursor: str | None = None, limit: int = 100
) -> Page[GroupRow]:
    """List groups by name: limits, active runs and waiting work; or one group."""
    rows = await connection.fetch(queries["page"], _GROUPS.last_name(cursor), name, limit + 1)
    occupancy = await read_occupancy(connection)

    def group_row(row: Any) -> GroupRow:
        return read_row(
            GroupRow,
            row,
            rate=msgspec.convert(row["rate"], Rate | None),
            touched=sorted(row["operator_fields"]),
            owners=group_owners(read_group(row)),
            **occupancy[row["name"]],
        )

    return _GROUPS.page(rows, limit, group_row)


async def read_occupancy(connection: Connection) -> defaultdict[str, dict[str, Any]]:
    """Count slots in use, live runs, waiting work and open dead letters of each group."""
    found: defaultdict[str, dict[str, Any]] = defaultdict(
        lambda: {"active": 0, "pending": 0, "in_progress": 0, "waiting": {}, "dead_letters": 0}
    )
    for row in await connection.fetch(queries["active"]):
        found[row["group_name"]]["active"] = row["slots"]
    for row in await connection.fetch(queries["live_runs"]):
        found[row["group_name"]][row["state"]] = row["runs"]
    for row in await read_waiting(connection):
        found[row["group_name"]]["waiting"][row["reason"]] = row["works"]
    for row in await connection.fetch(queries["letters"]):
        found[row["group_name"]]["dead_letters"] = row["letters"]
    return found


async def list_occupancy(connection: Connection, group: str | None = None) -> list[GroupOccupancy]:
    """Return the occupancy of each group by name, or of one group."""
    rows = await connection.fetch(queries["limits"])
    limits = {row["name"]: row for row in rows}
    occupancy = await read_occupancy(connection)
    # A group without known limits may still have work.
    return [
        read_row(GroupOccupancy, limits.get(name, {}), group=name, **occupancy[name])
        for name in sorted({*limits, *occupancy})
        if group in (None, name)
    ]
