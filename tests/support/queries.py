"""Questions to the test's database."""

from typing import Any

from headway_postgres_kit import Database


class Queries:
    """Asks the database for a value or for rows."""

    database: Database

    async def value(self, query: str, *arguments: Any) -> Any:
        async with self.database.acquire() as connection:
            return await connection.fetchval(query, *arguments)

    async def rows(self, query: str, *arguments: Any) -> list[Any]:
        async with self.database.acquire() as connection:
            return list(await connection.fetch(query, *arguments))
