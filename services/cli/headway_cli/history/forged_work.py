"""Compare the work of the dispatcher with the decisions of the scheduler.

Only the scheduler makes work, and it records each decision before it tells of it. Work without a
decision was published by somebody else.
"""

from headway_dispatcher.history.verify import MOST_TOLD
from headway_history import Difference
from headway_postgres_kit import Database, Queries
from msgspec import Struct

from headway_cli.serve import settings

queries = Queries("headway_cli", "sql/forged_work.sql")

# Decisions are deleted at their own pace, so the oldest settled work is left out.
_SHARE_COMPARED = 0.9


class _Retention(Struct, frozen=True, kw_only=True):
    """How long the services keep decisions and settled work; their own setting and default."""

    history_days: float = 30.0


async def find_forged_work(database: Database) -> list[Difference]:
    """Find work that the scheduler has not decided, in one snapshot of both services."""
    kept = settings.read(_Retention, {}).history_days
    async with database.acquire() as connection:
        rows = await connection.fetch(queries["undecided"], kept * _SHARE_COMPARED, MOST_TOLD)
    return [Difference(table="work_queue", row=row["id"], kind="undecided") for row in rows]
