"""Ids by their beginnings, as people copy them from a list."""

from collections.abc import Collection, Sequence
from typing import Any, Literal
from uuid import UUID

from headway_errors import Invalid, NotFound
from headway_postgres_kit import Connection, Queries

queries = Queries("headway_console.reading", "sql/ids.sql")

Kind = Literal["work", "run", "dead letter", "canary", "pause"]

# Ids that a message lists.
_LISTED = 5


async def find_id(connection: Connection, start: str, kinds: Collection[Kind]) -> UUID:
    """Return the only id that begins so; raises `NotFound`, or `Invalid` with the first matches."""
    rows = await ids_from(connection, start, kinds, _LISTED + 1)
    if not rows:
        named = " and no ".join(kinds)
        raise NotFound(f"no {named} has an id that begins with {start!r}: it may be deleted by now")
    if len(rows) > 1:
        some = ", ".join(f"{row['kind']} {row['id']}" for row in rows[:_LISTED])
        more = ", …" if len(rows) > _LISTED else ""
        raise Invalid(f"several ids begin with {start!r}: {some}{more}; write more of the id")
    identity: UUID = rows[0]["id"]
    return identity


async def ids_from(
    connection: Connection, start: str, kinds: Collection[Kind], limit: int
) -> Sequence[Any]:
    """Return the rows of ids that begin so, in order: kind and id."""
    digits = start.replace("-", "")
    first, last = (UUID(digits.ljust(32, fill)) for fill in "0f")
    return await connection.fetch(queries["in_range"], list(kinds), first, last, limit)
