"""The audit: who changed what, when, from what to what."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from headway_postgres_kit import Connection, Queries
from msgspec import Struct

from headway_console.reading.events import type_pattern
from headway_console.reading.pages import BadCursor, Page, Place, read_cursor, write_cursor

queries = Queries("headway_console.reading", "sql/audit.sql")

LOOKED_THROUGH = 5_000

_LIST = "audit"
_OPERATOR = "operator/"
_LAST_NUMBER = (1 << 63) - 1


class AuditFilter(Struct, frozen=True, kw_only=True):
    """Which entries are meant; what is left out does not matter.

    A target is the name of a manifest or a group, or the id of work or of a dead letter. `people`
    leaves out what applications declared.
    """

    actor: str | None = None
    target: str | None = None
    actions: tuple[str, ...] = ()
    people: bool = False
    since: datetime | None = None
    before: datetime | None = None


class AuditEntry(Struct, frozen=True, kw_only=True):
    """One entry: what somebody did. `before` and `after` are empty where nothing has values."""

    id: str
    at: datetime
    actor: str
    by: str
    action: str
    target: str
    before: dict[str, Any]
    after: dict[str, Any]


async def page_of_audit(
    connection: Connection, asked: AuditFilter, *, cursor: str | None = None, limit: int = 50
) -> Page[AuditEntry]:
    """A page of the audit, the newest first."""
    place = _place(cursor)
    people = asked.people or asked.actor is not None
    where = (asked.target, asked.since, asked.before, *place)
    rows: Sequence[Any] = await connection.fetch(
        queries["page"],
        *where,
        None if asked.actor is None else _source(asked.actor),
        [type_pattern(one) for one in asked.actions] or None,
        *(people, LOOKED_THROUGH, limit + 1),
    )
    reached = None
    if len(rows) <= limit:
        reached = await connection.fetchrow(queries["reached"], *where, people, LOOKED_THROUGH)
    if reached is not None:  # what is further back comes with the next page
        rows = [row for row in rows if _order(row) >= _order(reached)]
    following = rows[limit - 1] if len(rows) > limit else reached
    return Page(
        items=[_entry(row) for row in rows[:limit]],
        next=None if following is None else write_cursor(_place_of(following)),
        searched_until=None if reached is None else reached["recorded_at"],
    )


def _order(row: Any) -> tuple[datetime, str, int]:
    return row["recorded_at"], row["service"], row["id"]


def _place_of(row: Any) -> Place:
    return Place(_LIST, row["recorded_at"], f"{row['service']}{row['id']}")


def _place(cursor: str | None) -> tuple[datetime | None, int | None, int | None]:
    """After which time, and which numbers of the scheduler and the dispatcher at that time.

    Of one moment the scheduler's entries come before the dispatcher's.
    """
    place = read_cursor(_LIST, cursor)
    if place is None:
        return None, None, None
    service, number = str(place.id)[:1], str(place.id)[1:]
    if place.at is None or service not in ("s", "d") or not number.isdecimal():
        raise BadCursor(f"{cursor!r} names no entry of {_LIST}: begin without one")
    if service == "s":
        return place.at, int(number), _LAST_NUMBER
    return place.at, 0, int(number)


def _source(actor: str) -> str:
    escaped = actor.replace("\x00", "").replace("\\", "\\\\")
    return _OPERATOR + escaped.replace("%", r"\%").replace("_", r"\_")


def _entry(row: Any) -> AuditEntry:
    by, _, name = row["source"].partition("/")
    data = row["data"] if isinstance(row["data"], dict) else {}
    return AuditEntry(
        id=row["event_id"],
        at=row["occurred_at"],
        actor=name or by,
        by=by,
        action=row["type"].removeprefix("headway.").rpartition(".v")[0],
        target=row["subject"],
        before=data.get("before") or {},
        after={key: value for key, value in data.items() if key != "before"},
    )
