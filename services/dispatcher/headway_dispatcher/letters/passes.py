"""What happens to dead letters by itself: slots become free, and resolved ones grow old."""

import logging
from datetime import timedelta

from headway_postgres_kit import Clock, Database

from headway_dispatcher import store
from headway_dispatcher.history import history_records
from headway_dispatcher.intake import prune
from headway_dispatcher.intake.work_intake import Followers
from headway_dispatcher.letters import letters
from headway_dispatcher.store import HISTORY, canary_queries, letter_queries

logger = logging.getLogger(__name__)

_BATCH = 1000


class WaitingRetries:
    """Retries letters whose slot has become free, for one dispatcher process.

    Whoever settles the work in the slot does so at once; this makes good for what came at the
    same moment, or was in somebody's hands.
    """

    def __init__(self, database: Database, *, clock: Clock, wake: Followers) -> None:
        self._database = database
        self._clock = clock
        self._wake = wake

    async def run_once(self) -> float | None:
        """Retry what can be, once."""
        async with self._database.transaction() as connection:
            await prune.lock(connection)
            times = await store.read_times(connection, self._clock)
            resumed = await letters.resume(connection, None, times=times)
        if resumed:
            self._wake.gate.call()
            self._wake.relay.call()
        return 0.0 if resumed == letters.BATCH else None


class LetterRetention:
    """Forgets dead letters that were seen to long ago; those that await somebody never."""

    def __init__(self, database: Database, *, days: float, clock: Clock) -> None:
        self._database = database
        self._kept = timedelta(days=days)
        self._clock = clock

    async def run_once(self) -> float | None:
        """Delete one batch; goes on at once while there is more."""
        async with self._database.transaction() as connection:
            oldest = await self._clock.now(connection) - self._kept
            status = await connection.execute(letter_queries["purge"], oldest, _BATCH)
            await connection.execute(canary_queries["purge"], oldest)
            purged = int(status.rpartition(" ")[2])
            if purged:
                await HISTORY.append(connection, [history_records.letters_forgotten(oldest)])
        if purged:
            logger.info("forgot %d dead letter(s) that were seen to", purged)
        return 0.0 if purged == _BATCH else None
