"""Measure how long runs of a job take, so that the gate can size its leases."""

from headway_clock import monotonic
from headway_postgres_kit import Database

from headway_dispatcher.store import gates
from headway_dispatcher.wakeups import EndedJobs

_SECONDS_BETWEEN_PASSES = 1.0
_RECENT_RUNS = 100
# With fewer runs than this, the duration of a job counts as unknown.
_LEAST_RUNS = 10


class Durations:
    """Measures the durations of jobs, for one dispatcher process."""

    def __init__(self, database: Database, ended: EndedJobs) -> None:
        self._database = database
        self._ended = ended
        self._may_run_at = 0.0

    async def run_once(self) -> float | None:
        """Store the durations of jobs whose runs have ended, at most once a second."""
        early = self._may_run_at - monotonic()
        if early > 0:
            return early
        jobs = self._ended.take()
        if jobs:
            self._may_run_at = monotonic() + _SECONDS_BETWEEN_PASSES
            async with self._database.acquire() as connection:
                await connection.execute(
                    gates["measure_durations"], jobs, _RECENT_RUNS, _LEAST_RUNS
                )
        return None
