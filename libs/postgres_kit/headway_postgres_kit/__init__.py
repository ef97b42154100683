"""Access to PostgreSQL through asyncpg; independent of the domain.

- `database`: a pool with timeouts, JSON codecs, translated errors and a clock for schedule time.
- `sql`: named queries from `.sql` files.
- `poolers`: rejects connection poolers that share sessions.
- `statement_batch`: several writes in one statement.
- `migrations`: forward-only numbered migrations with checksums.
"""

from headway_postgres_kit.database import DATABASE_CLOCK as DATABASE_CLOCK
from headway_postgres_kit.database import Clock as Clock
from headway_postgres_kit.database import Database as Database
from headway_postgres_kit.database import DatabaseUnavailable as DatabaseUnavailable
from headway_postgres_kit.database import json_array as json_array
from headway_postgres_kit.database import note as note
from headway_postgres_kit.database import savepoint as savepoint
from headway_postgres_kit.database import storable as storable
from headway_postgres_kit.driver import Connection as Connection
from headway_postgres_kit.migrations import Migrations as Migrations
from headway_postgres_kit.migrations import SchemaMismatch as SchemaMismatch
from headway_postgres_kit.poolers import SessionsShared as SessionsShared
from headway_postgres_kit.sql import Queries as Queries
from headway_postgres_kit.statement_batch import StatementBatch as StatementBatch
