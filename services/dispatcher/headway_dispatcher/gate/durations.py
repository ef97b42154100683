"""Store how long runs of a job take, so that the gate can size its leases."""

from headway_clock import monotonic
from headway_decisions.capacity.packing import typical_seconds
from headway_postgres_kit import Database

from headway_dispatcher.store import gates
from headway_dispatcher.wakeups import RunDurations

_SECONDS_BETWEEN_PASSES = 1.0


class Durations:
    """Stores the durations of the jobs whose runs this process projects."""

    def __init__(self, database: Database, recent: RunDurations) -> None:
        self._database = database
        self._recent = recent
        self._may_run_at = 0.0

    async def run_once(self) -> float | None:
        """Store the durations of jobs whose runs have completed, at most once a second."""
        early = self._may_run_at - monotonic()
        if early > 0:
            return early
        typical = {job: typical_seconds(durations) for job, durations in self._recent.take()}
        known = {job: seconds for job, seconds in typical.items() if seconds is not None}
        if known:
            self._may_run_at = monotonic() + _SECONDS_BETWEEN_PASSES
            async with self._database.acquire() as connection:
                await connection.execute(
                    gates["write_durations"], list(known), list(known.values())
                )
        return None
