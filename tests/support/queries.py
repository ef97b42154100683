"""Questions to the test's database."""

from typing import Any

from headway_postgres_kit import Database

# Disable all manifests; locks them in the order of the tick.
DISABLE_ALL = """
    WITH ordered AS (SELECT id FROM scheduler.manifest ORDER BY id FOR UPDATE)
    UPDATE scheduler.manifest SET enabled = false, disabled_by = 'operator', wake_at = NULL
    WHERE id IN (SELECT id FROM ordered)
"""


class Queries:
    """Asks the database for a value or for rows."""

    database: Database

    async def value(self, query: str, *arguments: Any) -> Any:
        async with self.database.acquire() as connection:
            return await connection.fetchval(query, *arguments)

    async def rows(self, query: str, *arguments: Any) -> list[Any]:
        async with self.database.acquire() as connection:
            return list(await connection.fetch(query, *arguments))
