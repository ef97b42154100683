"""Search over names, and over ids by their beginning."""

from headway_postgres_kit import Connection, Queries
from msgspec import Struct

from headway_console.reading.ids import ids_from
from headway_console.reading.lists import SearchText, escaped

queries = Queries("headway_console.reading", "sql/search.sql")

# Shorter beginnings of ids match too much.
_MIN_DIGITS = 4
_MAX_DIGITS = 32


class Match(Struct, frozen=True, kw_only=True):
    """A thing that was found: its kind, its name or id, and a line about it."""

    kind: str
    name: str
    about: str = ""


async def search(connection: Connection, text: SearchText, *, limit: int = 8) -> list[Match]:
    """Find manifests, jobs, groups and workers by name, and runs, work and dead letters by id."""
    words = "%".join(map(escaped, text.split()))
    rows = await connection.fetch(queries["names"], f"%{words}%", f"{words}%", limit)
    found = [Match(**row) for row in rows]
    digits = text.strip().lower().replace("-", "")
    is_id = _MIN_DIGITS <= len(digits) <= _MAX_DIGITS and set(digits) <= set("0123456789abcdef")
    if is_id:
        ids = await ids_from(connection, digits, ("work", "run", "dead letter"), limit)
        found += [Match(kind=row["kind"], name=str(row["id"])) for row in ids]
    return found
