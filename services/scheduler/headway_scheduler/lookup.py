"""Find the manifest that a request names, or explain why there is none."""

from typing import Any

from headway_decisions.declaring.lookup import deleted_message, missing_message
from headway_errors import NotFound
from headway_postgres_kit import Connection, Queries

queries = Queries("headway_scheduler", "sql/questions.sql")

# Ids that are compared to suggest similar names.
_MOST_COMPARED = 2000


async def find_manifest(connection: Connection, external_id: str) -> Any:
    """Return the row of a manifest with its group and parent; raises `NotFound`."""
    # PostgreSQL accepts no NUL, and no manifest has one.
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
