"""Finding the manifest that a question is about, or saying why there is none."""

from typing import Any

from headway_decisions.declaring.lookup import deleted_message, missing_message
from headway_errors import NotFound
from headway_postgres_kit import Connection, Queries

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
        return deleted_message(external_id, deleted["occurred_at"], deleted["source"])
    rows = await connection.fetch(queries["similar_names"], sought, _MOST_COMPARED)
    return missing_message(external_id, [row["external_id"] for row in rows])
