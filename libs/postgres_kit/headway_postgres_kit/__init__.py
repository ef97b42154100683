"""Mechanism over asyncpg; knows no word of the domain.

- `database`: a pool with timeouts and JSON codecs, and errors translated once.
- `at_hand`: connections that are passed on without the pool.
- `clock`: the time of decisions, PostgreSQL's unless somebody brings another.
- `sql`: named queries out of `.sql` files.
- `poolers`: finds a pooler that shares sessions, which nothing here survives.
- `together`: writes that are sent as one.
- `migrations`: forward-only numbered migrations with checksums.
"""

from headway_postgres_kit.clock import DATABASE_CLOCK, Clock, DatabaseClock
from headway_postgres_kit.database import (
    Connection,
    Database,
    DatabaseUnavailable,
    json_array,
    note,
    savepoint,
    storable,
)
from headway_postgres_kit.migrations import Migrations, SchemaMismatch
from headway_postgres_kit.poolers import SessionsShared
from headway_postgres_kit.sql import Queries
from headway_postgres_kit.statement_batch import StatementBatch

__all__ = [
    "DATABASE_CLOCK",
    "Clock",
    "Connection",
    "Database",
    "DatabaseClock",
    "DatabaseUnavailable",
    "Migrations",
    "Queries",
    "SchemaMismatch",
    "SessionsShared",
    "StatementBatch",
    "json_array",
    "note",
    "savepoint",
    "storable",
]
