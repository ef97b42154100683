"""Groups: their limits, what is under way in them, what waits and why."""

from collections import defaultdict
from datetime import datetime
from typing import Any

from headway_contract.dispatching import GroupOccupancy
from headway_contract.scheduling import FieldOwner
from headway_decisions.declaring.ownership import group_owners, read_group
from headway_postgres_kit import Connection, Queries
from msgspec import Struct

from headway_console.reading.pages import Page, name_of, page_of
from headway_console.reading.works import queries as work_queries

queries = Queries("headway_console.reading", "sql/groups.sql")

# How much waiting work is counted; who has more knows enough.
COUNTED_WAITING = 50_000

_LIST = "groups"


class GroupRow(Struct, frozen=True, kw_only=True):
    """A group. `waiting` says how much waits for what; `frees_at` until when its rate holds it.

    `owners` says who decides about each setting, and how an operator gives it back.
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
        """How many runs hold a slot."""
        return self.pending + self.in_progress


class Occupancy(Struct, frozen=True, kw_only=True):
    """What all groups have under way, waiting and awaiting somebody."""

    active: dict[tuple[str, str], int]
    waiting: dict[str, dict[str, int]]
    letters: dict[str, int]


async def page_of_groups(
    connection: Connection,
    *,
    name: str | None = None,
    cursor: str | None = None,
    limit: int = 100,
) -> Page[GroupRow]:
    """A page of groups in the order of their names, or the one that is named."""
    rows = await connection.fetch(queries["page"], name_of(_LIST, cursor), name, limit + 1)
    room = await read_occupancy(connection)
    return page_of(_LIST, rows, limit, lambda row: _group(row, room), None, "name")


async def read_occupancy(connection: Connection) -> Occupancy:
    """What is under way and what waits, in all groups."""
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
    """Return what each group runs, holds back and has failed, by name; or only one group."""
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
            pending=room.active.get((name, "pending"), 0),
            in_progress=room.active.get((name, "in_progress"), 0),
            waiting=room.waiting.get(name, {}),
            dead_letters=room.letters.get(name, 0),
        )
        for name in sorted(names)
        if group in (None, name)
    ]


def _group(row: Any, room: Occupancy) -> GroupRow:
    name = row["name"]
    return GroupRow(
        touched=sorted(row["touched"]),
        owners=group_owners(read_group(row)),
        pending=room.active.get((name, "pending"), 0),
        in_progress=room.active.get((name, "in_progress"), 0),
        waiting=room.waiting.get(name, {}),
        dead_letters=room.letters.get(name, 0),
        **{
            column: row[column]
            for column in (
                *("name", "owner", "max_active", "priority", "enabled", "rate", "frees_at"),
                *("manifests", "disabled", "blocked", "next_due_at"),
            )
        },
    )
