"""Access to PostgreSQL through asyncpg; independent of the domain.

- `database`: a pool with timeouts, JSON codecs, translated errors and a clock for schedule time.
- `hot_connections`: connections that are reused without the pool.
- `sql`: named queries from `.sql` files.
- `poolers`: rejects connection poolers that share sessions.
- `statement_batch`: several writes in one statement.
- `migrations`: forward-only numbered migrations with checksums.
"""

from headway_postgres_kit.database import (
    DATABASE_CLOCK,
    Clock,
    Database,
    DatabaseUnavailable,
    json_array,
    note,
    savepoint,
    storable,
)
from headway_postgres_kit.hot_connections import Connection
from headway_postgres_kit.migrations import Migrations, SchemaMismatch
from headway_postgres_kit.poolers import SessionsShared
from headway_postgres_kit.sql import Queries
from headway_postgres_kit.statement_batch import StatementBatch

__all__ = [
    "DATABASE_CLOCK",
    "Clock",
    "Connection",
    "Database",
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
