"""Why ready work waits, lane by lane.

The gate passes lanes without room over, and so tells nobody why they wait. This pass does,
after the gate and without its lock: its word is for people, and nothing is decided by
it. It costs a step for each lane that has ready work, however much that is. Why other work
waits stands in its own row; the view `dispatcher.waiting` tells both.
"""

from datetime import timedelta

from headway_clock import monotonic
from headway_decisions.capacity.capacity import Room
from headway_postgres_kit import Clock, Database

from headway_dispatcher.gate.store import GateTransaction
from headway_dispatcher.settings import DispatcherSettings

# Under load the gate runs all the time, and nobody reads that fast.
_SECONDS_BETWEEN = 1.0


class Waits:
    """Explains the waits, for one dispatcher process."""

    def __init__(self, database: Database, settings: DispatcherSettings, *, clock: Clock) -> None:
        self._database = database
        self._settings = settings
        self._clock = clock
        self._may_run_at = 0.0

    async def run_once(self) -> float | None:
        """Write down which lanes are closed, but not more than once in a second."""
        early = self._may_run_at - monotonic()
        if early > 0:
            return early
        self._may_run_at = monotonic() + _SECONDS_BETWEEN
        async with self._database.transaction() as connection:
            tx = GateTransaction(connection, self._clock)
            lanes = await tx.lanes()
            if lanes is None:
                return None
            situation = await tx.situation(
                max_active=self._settings.max_active,
                worker_silence=timedelta(seconds=self._settings.orphan_timeout_seconds),
            )
            now = situation.glance.times.schedule
            room = Room(situation.limits, situation.load, situation.fleet, now=now)
            closed = [
                (group, job, reason)
                for group, job in lanes
                if (reason := room.waits_for(group, job)) is not None
            ]
            await tx.close_lanes(closed, now=now)
        return None
