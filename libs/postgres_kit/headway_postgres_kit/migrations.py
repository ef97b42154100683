"""Forward-only numbered migrations with checksums.

The files are `NNNN_title.sql` in a folder of the package that owns the schema. What was
applied is written down with its checksum, so that a file edited afterwards, or a database
that is ahead of the code, is noticed instead of guessed about.
"""

import hashlib
import re
from dataclasses import dataclass
from importlib import resources

from headway_postgres_kit.database import Connection, Database

_FILE = re.compile(r"^(\d{4})_([a-z0-9_]+)\.sql$")
_LOCK = 0x48454144  # any number, the same for every migrator

# A migration may take its time, and so may the one that another process is at.
_PATIENCE_SECONDS = 3600.0
_NO_LIMITS = "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0"

_SCHEMA_EXISTS = "SELECT to_regclass($1) IS NOT NULL"
_CREATE = """
CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE IF NOT EXISTS {schema}.migration (
    number     integer PRIMARY KEY,
    title      text NOT NULL,
    checksum   text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
"""


class SchemaMismatch(Exception):
    """Code and database do not belong together."""


@dataclass(frozen=True)
class Migration:
    """One step forward."""

    number: int
    title: str
    sql: str

    @property
    def checksum(self) -> str:
        """Tells an edited file from the one that was applied."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


class Migrations:
    """The migrations of one schema."""

    def __init__(self, package: str, schema: str) -> None:
        self.schema = schema
        self.steps = _read(package)

    async def apply(self, database: Database) -> list[str]:
        """Bring the schema up to date; returns the titles of what was applied."""
        async with database.transaction() as connection:
            await connection.execute(_NO_LIMITS)
            await connection.execute(
                "SELECT pg_advisory_xact_lock($1)", _LOCK, timeout=_PATIENCE_SECONDS
            )
            await connection.execute(_CREATE.format(schema=self.schema))
            pending = self._pending(await self._applied(connection))
            for step in pending:
                await connection.execute(step.sql, timeout=_PATIENCE_SECONDS)
                await connection.execute(
                    f"INSERT INTO {self.schema}.migration (number, title, checksum)"  # noqa: S608
                    " VALUES ($1, $2, $3)",
                    step.number,
                    step.title,
                    step.checksum,
                )
        return [f"{self.schema} {step.number:04} {step.title}" for step in pending]

    async def check(self, database: Database) -> None:
        """Raise unless the database is exactly at the version of the code."""
        async with database.acquire() as connection:
            exists = await connection.fetchval(_SCHEMA_EXISTS, f"{self.schema}.migration")
            applied = await self._applied(connection) if exists else {}
        pending = self._pending(applied)
        if pending:
            raise SchemaMismatch(
                f"the database's schema {self.schema!r} lacks {len(pending)} migration(s), "
                f"first {pending[0].number:04}_{pending[0].title}: run 'headway migrate'"
            )

    async def _applied(self, connection: Connection) -> dict[int, str]:
        rows = await connection.fetch(
            f"SELECT number, checksum FROM {self.schema}.migration"  # noqa: S608
        )
        return {row["number"]: row["checksum"] for row in rows}

    def _pending(self, applied: dict[int, str]) -> list[Migration]:
        known = {step.number: step for step in self.steps}
        newer = sorted(set(applied) - set(known))
        if newer:
            raise SchemaMismatch(
                f"the database's schema {self.schema!r} is at version {newer[-1]}, newer than "
                f"this program, which knows {max(known, default=0)}: install a newer Headway"
            )
        for number, checksum in applied.items():
            if known[number].checksum != checksum:
                raise SchemaMismatch(
                    f"migration {number:04} of schema {self.schema!r} was changed after it was "
                    "applied: restore the file and put the change into a new migration"
                )
        return [step for step in self.steps if step.number not in applied]


def _read(package: str) -> list[Migration]:
    steps = []
    for entry in resources.files(package).joinpath("migrations").iterdir():
        match = _FILE.match(entry.name)
        if match:
            steps.append(Migration(int(match[1]), match[2], entry.read_text(encoding="utf-8")))
    steps.sort(key=lambda step: step.number)
    if [step.number for step in steps] != list(range(1, len(steps) + 1)):
        raise ValueError(f"migrations of {package} are not numbered 1, 2, 3, …")
    return steps
