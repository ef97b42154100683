"""Forward-only numbered migrations with checksums.

The files are `NNNN_title.sql` in a folder of the package that owns the schema. Each applied
migration is recorded with its checksum, which detects a file that was edited afterwards and a
database that is newer than the code.
"""

import hashlib
import re
from dataclasses import dataclass
from importlib import resources

from headway_postgres_kit.database import Database
from headway_postgres_kit.driver import Connection

_FILE = re.compile(r"^(\d{4})_([a-z0-9_]+)\.sql$")
_LOCK = 0x48454144  # any number, the same for every migrator

# Limits a migration, and the wait for a migration of another process.
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
    """The version of the database does not fit the code."""


@dataclass(frozen=True)
class Migration:
    """A numbered step."""

    number: int
    title: str
    sql: str

    @property
    def checksum(self) -> str:
        """The digest that detects an edited file."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


class Migrations:
    """The migrations of one schema."""

    def __init__(self, package: str, schema: str) -> None:
        self.schema = schema
        self.steps = _read(package)

    async def apply(self, database: Database) -> list[str]:
        """Apply the missing steps; returns their titles."""
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
        """Raise `SchemaMismatch` unless the database has the version of the code."""
        async with database.acquire() as connection:
            exists = await connection.fetchval(_SCHEMA_EXISTS, f"{self.schema}.migration")
            applied = await self._applied(connection) if exists else {}
        pending = self._pending(applied)
        if pending:
            raise SchemaMismatch(
                f"the database's schema {self.schema!r} lacks migrations from "
                f"{pending[0].number:04}_{pending[0].title} on: run 'headway migrate'"
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
