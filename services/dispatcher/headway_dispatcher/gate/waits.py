"""The pass that records why lanes with ready work are closed."""

from headway_clock import monotonic
from headway_postgres_kit import Connection, Database

from headway_dispatcher.gate.gate import read_situation
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.store import gates

_LANES_LOCK = 0x48570012
# Under load the gate runs all the time; people do not read faster.
_SECONDS_BETWEEN_WAITS = 1.0


async def read_lanes(connection: Connection) -> list[tuple[str, str]]:
    """Read the lanes (group and job) with ready work."""
    rows = await connection.fetch(gates["lanes"])
    return [(row["group_name"], row["job"]) for row in rows]


class Waits:
    """Records why ready work waits, lane by lane, for one dispatcher process.

    It runs after the gate and without its lock: people read the reasons, no decision does. The
    row of other waiting work has its own reason; the view `dispatcher.waiting` shows both.
    """

    def __init__(self, database: Database, settings: DispatcherSettings) -> None:
        self._database = database
        self._settings = settings
        self._may_run_at = 0.0

    async def run_once(self) -> float | None:
        """Record the closed lanes, at most once a second."""
        early = self._may_run_at - monotonic()
        if early > 0:
            return early
        self._may_run_at = monotonic() + _SECONDS_BETWEEN_WAITS
        async with self._database.transaction() as connection:
            if not await connection.fetchval(gates["lock_lanes"], _LANES_LOCK):
                return None
            lanes = await read_lanes(connection)
            situation = await read_situation(connection, self._database, self._settings)
            room = situation.room()
            reasons = {lane: room.waits_for(*lane) for lane in lanes}
            closed = [(*lane, reason) for lane, reason in reasons.items() if reason is not None]
            await connection.execute(
                gates["close_lanes"],
                [group for group, _, _ in closed],
                [job for _, job, _ in closed],
                [reason for _, _, reason in closed],
                situation.now,
            )
        return None
