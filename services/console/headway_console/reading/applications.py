"""Applications: the source that declares each of them, and how much it owns."""

from datetime import datetime
from typing import Literal

from headway_postgres_kit import Connection, Queries
from msgspec import Struct

from headway_console.reading.pages import Page, name_of, page_of

queries = Queries("headway_console.reading", "sql/applications.sql")

_LIST = "applications"


class ApplicationRow(Struct, frozen=True, kw_only=True):
    """An application. Its `source` is code that starts, or files that somebody applied."""

    name: str
    source: Literal["code", "files"]
    generation: int
    declared_at: datetime
    declared_by: str
    manifests: int
    jobs: int


async def page_of_applications(
    connection: Connection, *, cursor: str | None = None, limit: int = 100
) -> Page[ApplicationRow]:
    """A page of applications, in the order of their names."""
    rows = await connection.fetch(queries["page"], name_of(_LIST, cursor), limit + 1)
    return page_of(_LIST, rows, limit, lambda row: ApplicationRow(**dict(row)), None, "name")
