"""Mechanism over asyncpg; knows no word of the domain.

- `database`: a pool with timeouts and JSON codecs, and errors translated once.
- `sql`: named queries out of `.sql` files.
- `migrations`: forward-only numbered migrations with checksums.
"""

from headway_postgres_kit.database import (
    Connection,
    Database,
    DatabaseUnavailable,
    json_array,
    storable,
)
from headway_postgres_kit.migrations import Migrations, SchemaMismatch
from headway_postgres_kit.sql import Queries

__all__ = [
    "Connection",
    "Database",
    "DatabaseUnavailable",
    "Migrations",
    "Queries",
    "SchemaMismatch",
    "json_array",
    "storable",
]
