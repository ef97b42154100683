"""Applications, with their source and what they own."""

from datetime import datetime
from functools import partial
from typing import Literal

from headway_postgres_kit import Connection, Queries
from msgspec import Struct

from headway_console.reading.pages import Page, name_of, page_of, read_row

queries = Queries("headway_console.reading", "sql/applications.sql")

_LIST = "applications"


class ApplicationRow(Struct, frozen=True, kw_only=True):
    """An application; its `source` is its code, or files that a person applied."""

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
    """List applications by name, with the source that declares each."""
    rows = await connection.fetch(queries["page"], name_of(_LIST, cursor), limit + 1)
    return page_of(_LIST, rows, limit, partial(read_row, ApplicationRow), None, "name")
