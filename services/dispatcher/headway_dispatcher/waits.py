"""Why work waits that the gate does not even look at.

The gate passes full groups over without a scan, and so cannot tell their backlog why it
waits. This pass does, now and then and without the gate's lock: its word is for people,
and nothing is decided by it.
"""

from datetime import timedelta

from headway_decisions import capacity
from headway_postgres_kit import Clock, Database

from headway_dispatcher import store
from headway_dispatcher.gate_store import GateTransaction
from headway_dispatcher.settings import DispatcherSettings


class Waits:
    """Explains the waits, for one dispatcher process."""

    def __init__(self, database: Database, settings: DispatcherSettings, *, clock: Clock) -> None:
        self._database = database
        self._settings = settings
        self._clock = clock

    async def run_once(self) -> float | None:
        """Write reasons down, once."""
        async with self._database.transaction() as connection:
            tx = GateTransaction(connection)
            times = await store.read_times(connection, self._clock)
            situation = await tx.situation(
                times.real, worker_silence=timedelta(seconds=self._settings.orphan_timeout_seconds)
            )
            _, closed = capacity.rooms(
                situation.load, self._settings.max_active, situation.limits, most=1
            )
            await tx.explain_waits(situation, closed, now=times.schedule)
        return None
