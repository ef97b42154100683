"""Finding the manifest that a question is about, or saying why there is none."""

import difflib
from typing import Any

from headway_errors import NotFound
from headway_postgres_kit import Connection, Queries

from headway_scheduler.explain.messages import by_whom

queries = Queries("headway_scheduler", "sql/questions.sql")

# Among how many ids a name is sought that is like the one given.
_MOST_COMPARED = 2000


async def find_manifest(connection: Connection, external_id: str) -> Any:
    """The row of a manifest with its group and parent; refuses a name that nobody bears."""
    # PostgreSQL takes no NUL, and no manifest could have one.
    row = await connection.fetchrow(queries["find_manifest"], external_id.replace("\x00", ""))
    if row is not None:
        return row
    raise NotFound(await _unknown(connection, external_id))


async def _unknown(connection: Connection, external_id: str) -> str:
    sought = external_id.replace("\x00", "")
    deleted = await connection.fetchrow(queries["deleted"], sought)
    if deleted is not None:
        at, by = f"{deleted['occurred_at']:%Y-%m-%d %H:%M:%S} UTC", by_whom(deleted["source"])
        return f"there is no manifest {external_id!r}: it was deleted at {at} {by}"
    rows = await connection.fetch(queries["similar_names"], sought, _MOST_COMPARED)
    by_letters = {row["external_id"].lower(): row["external_id"] for row in rows}
    near = [name for name in by_letters if sought and sought.lower() in name][:3]
    near = near or difflib.get_close_matches(sought.lower(), by_letters, n=3, cutoff=0.6)
    meant = " or ".join(repr(by_letters[name]) for name in near)
    remedy = f"did you mean {meant}?" if meant else "see 'headway manifests'"
    return f"there is no manifest {external_id!r}: {remedy}"
