"""Groups: limits, active runs and waiting work."""

from collections import defaultdict
from datetime import datetime
from typing import Any

from headway_contract.fields import Name
from headway_contract.manifests import FieldOwner
from headway_contract.operations import GroupOccupancy
from headway_decisions.declaring.ownership import group_owners, read_group
from headway_postgres_kit import Connection, Queries
from msgspec import Struct

from headway_console.reading.pages import Page, name_of, page_of, read_row
from headway_console.reading.works import queries as work_queries

queries = Queries("headway_console.reading", "sql/groups.sql")

# Waiting work is counted up to this number.
COUNTED_WAITING = 50_000

_LIST = "groups"


class GroupRow(Struct, frozen=True, kw_only=True):
    """A group. `waiting` counts work by wait reason; `frees_at` is the end of its rate limit.

    `owners` names the owner of each setting, and the command that resets it to code.
    """

    name: str
    owner: str | None
    max_active: int | None
    priority: int
    enabled: bool
    rate: Any
    touched: list[str]
    frees_at: datetime | None
    manifests: int
    disabled: int
    blocked: int
    next_due_at: datetime | None
    pending: int
    in_progress: int
    waiting: dict[str, int]
    dead_letters: int
    owners: list[FieldOwner] = []

    @property
    def active(self) -> int:
        """Return the number of runs that hold a slot."""
        return self.pending + self.in_progress


class Occupancy(Struct, frozen=True, kw_only=True):
    """Active runs, waiting work and open dead letters of all groups."""

    active: dict[tuple[str, str], int]
    waiting: dict[str, dict[str, int]]
    letters: dict[str, int]

    def of(self, group: str) -> dict[str, Any]:
        """Return the fields about one group."""
        return {
            "pending": self.active.get((group, "pending"), 0),
            "in_progress": self.active.get((group, "in_progress"), 0),
            "waiting": self.waiting.get(group, {}),
            "dead_letters": self.letters.get(group, 0),
        }


async def page_of_groups(
    connection: Connection,
    *,
    name: Name | None = None,
    cursor: str | None = None,
    limit: int = 100,
) -> Page[GroupRow]:
    """List groups by name: limits, active runs and waiting work; or one group."""
    rows = await connection.fetch(queries["page"], name_of(_LIST, cursor), name, limit + 1)
    room = await read_occupancy(connection)
    return page_of(_LIST, rows, limit, lambda row: _group(row, room), None, "name")


async def read_occupancy(connection: Connection) -> Occupancy:
    """Count active runs, waiting work and open dead letters in all groups."""
    active = await connection.fetch(queries["active"])
    waiting = await connection.fetch(work_queries["waiting_by_reason"], COUNTED_WAITING)
    letters = await connection.fetch(queries["letters"])
    reasons: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for row in waiting:
        reasons[row["group_name"]][row["reason"]] = row["works"]
    return Occupancy(
        active={(row["group_name"], row["state"]): row["runs"] for row in active},
        waiting=dict(reasons),
        letters={row["group_name"]: row["letters"] for row in letters},
    )


async def list_occupancy(connection: Connection, group: str | None = None) -> list[GroupOccupancy]:
    """Return the occupancy of each group by name, or of one group."""
    rows = await connection.fetch(queries["limits"])
    limits = {row["name"]: row for row in rows}
    room = await read_occupancy(connection)
    # A group without known limits may still have work.
    names = {*limits, *(name for name, _ in room.active), *room.waiting, *room.letters}
    return [
        GroupOccupancy(
            group=name,
            max_active=limits[name]["max_active"] if name in limits else None,
            enabled=limits[name]["enabled"] if name in limits else True,
            **room.of(name),
        )
        for name in sorted(names)
        if group in (None, name)
    ]


def _group(row: Any, room: Occupancy) -> GroupRow:
    owners = group_owners(read_group(row))
    touched = sorted(row["operator_fields"])
    return read_row(GroupRow, row, touched=touched, owners=owners, **room.of(row["name"]))
