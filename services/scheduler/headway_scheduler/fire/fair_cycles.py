"""Share the manifests of full cycles fairly among the groups."""

from collections import defaultdict
from datetime import datetime
from uuid import UUID

from headway_decisions.firing.fairness import DueGroup, cycles_ahead, in_cycles, share
from headway_postgres_kit import Connection

from headway_scheduler.store import manifests

# The bound of the statement `awake_groups`.
_MOST_COUNTED = 100_000
# A long backlog, in cycles. If no other group is due, its cycles are longer, up to a bound: another
# group that comes due meanwhile waits for the end of one cycle.
_LONG = 4
_MOST_ALONE = 2500


async def fair_cycles(connection: Connection, now: datetime, limit: int) -> list[list[UUID]]:
    """Share this and the next cycles fairly among the groups with due manifests."""
    counted = await connection.fetch(manifests["awake_groups"], now)
    if sum(row["due"] for row in counted) >= _MOST_COUNTED:
        # Groups behind a backlog that is longer than the bound are counted separately.
        names = [row["name"] for row in counted]
        counted += await connection.fetch(manifests["awake_others"], now, names, limit)
    groups = [DueGroup(**dict(row)) for row in counted]
    room, cycle = limit * cycles_ahead(sum(group.due for group in groups), limit), limit
    if len(groups) == 1 and groups[0].due >= _LONG * limit:
        room = cycle = max(limit, _MOST_ALONE)
    shares = share(groups, room)
    rows = await connection.fetch(
        manifests["awake_of_groups"], now, list(shares), list(shares.values())
    )
    shared: dict[str, list[UUID]] = defaultdict(list)
    for row in rows:
        shared[row["name"]].append(row["id"])
    return in_cycles(shared, cycle)
