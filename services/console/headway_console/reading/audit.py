"""The audit: changes with their actor and the values before and after."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from headway_contract.fields import Text
from headway_postgres_kit import Connection, Queries
from msgspec import Struct

from headway_console.reading.events import type_pattern
from headway_console.reading.lists import Listing, Page, Texts, escaped

queries = Queries("headway_console.reading", "sql/audit.sql")

SEARCHED = 5_000

_AUDIT = Listing("audit", "recorded_at", "entry", str)
_OPERATOR = "operator/"
_LAST_NUMBER = (1 << 63) - 1


class AuditFilter(Struct, frozen=True, kw_only=True):
    """Filters of the audit.

    A target is the name of a manifest or a group, or the id of work or of a dead letter. `people`
    leaves out declarations by applications.
    """

    actor: Text | None = None
    target: Text | None = None
    action: Texts = ()
    people: bool = False
    since: datetime | None = None
    before: datetime | None = None


class AuditEntry(Struct, frozen=True, kw_only=True):
    """One change; `before` and `after` are empty without values."""

    id: str
    at: datetime
    actor: str
    by: str
    action: str
    target: str
    before: dict[str, Any]
    after: dict[str, Any]


async def page_of_audit(
    connection: Connection, filters: AuditFilter, *, cursor: str | None = None, limit: int = 50
) -> Page[AuditEntry]:
    """List changes and their actors, the newest first."""
    place = _place(cursor)
    people = filters.people or filters.actor is not None
    where = (filters.target, filters.since, filters.before, *place)
    rows: Sequence[Any] = await connection.fetch(
        queries["page"],
        *where,
        None if filters.actor is None else _OPERATOR + escaped(filters.actor),
        [type_pattern(action) for action in filters.action] or None,
        *(people, SEARCHED, limit + 1),
    )
    reached = None
    if len(rows) <= limit:
        reached = await connection.fetchrow(queries["reached"], *where, people, SEARCHED)
    if reached is not None:  # older rows belong to the next page
        rows = [row for row in rows if _order(row) >= _order(reached)]
    return _AUDIT.searched(_AUDIT.page(rows, limit, _entry), reached)


def _order(row: Any) -> tuple[datetime, str, int]:
    return row["recorded_at"], row["service"], row["id"]


def _place(cursor: str | None) -> tuple[datetime | None, int | None, int | None]:
    """Return the time of a cursor, and the numbers of both services to continue below."""
    at, entry = _AUDIT.time_and_id(cursor)
    if entry is None:
        return None, None, None
    service, number = entry[:1], entry[1:]
    if service not in ("s", "d") or not number.isdecimal():
        raise _AUDIT.unknown_entry(cursor)
    if service == "s":  # before entries of the dispatcher with the same time
        return at, int(number), _LAST_NUMBER
    return at, 0, int(number)


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
