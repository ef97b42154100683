"""A durable consumer for every declared job, and none for other jobs.

Heartbeats have no part in it: a worker may name any job, and an API of JetStream that is slow must
not keep a heartbeat from its answer. A job is declared when the scheduler announces it or queues
work of it.
"""

import logging

from headway_clock import monotonic
from headway_contract import subjects
from headway_decisions.healing import consumer_changes
from headway_jetstream_kit import Broker
from headway_jetstream_kit.connection import ApiError
from headway_jetstream_kit.provisioning import consumer_names, delete_consumer, ensure_consumer
from headway_postgres_kit import Database
from headway_service_kit.passes import Wakeup

from headway_dispatcher.provisioning import delivery_of, job_consumer
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.store import consumer_queries

logger = logging.getLogger(__name__)

AT_ONCE = 100


class JobConsumers:
    """Makes and deletes the consumers of jobs, for one dispatcher process."""

    def __init__(self, database: Database, broker: Broker, settings: DispatcherSettings) -> None:
        self._database = database
        self._broker = broker
        self._delivery = delivery_of(settings)
        self.wakeup = Wakeup()
        # Jobs whose consumer has the right settings, and when each job was last tried.
        self._checked: set[str] = set()
        self._tried: dict[str, float] = {}

    def check_again(self) -> None:
        """Look at every consumer as if for the first time, because streams were made again."""
        self._checked.clear()
        self.wakeup.call()

    async def run_once(self) -> float | None:
        """Make what is missing and delete what is left over; some of it at a time."""
        # Consumers first: one that was made after this reading is never taken for a leftover.
        names = await consumer_names(self._broker, subjects.RUNS_STREAM)
        existing = {job for name in names if (job := subjects.job_of_consumer(name)) is not None}
        async with self._database.acquire() as connection:
            rows = await connection.fetch(consumer_queries["jobs"], sorted(existing))
        changes = consumer_changes(
            existing,
            {row["name"]: row["needed"] for row in rows},
            checked=self._checked,
            tried=self._tried,
        )
        errors = {row["name"]: row["error"] for row in rows}
        await self._make(changes.make[:AT_ONCE], errors)
        await self._delete(changes.delete[:AT_ONCE])
        more = max(len(changes.make), len(changes.delete)) > AT_ONCE
        return 0.0 if more and self._checked.issuperset(changes.make[:AT_ONCE]) else None

    async def _make(self, jobs: list[str], errors: dict[str, str | None]) -> None:
        """Make consumers; note for `doctor` why one could not be made."""
        told: dict[str, str | None] = {}
        try:
            for job in jobs:
                self._tried[job] = monotonic()
                error = await self._ensure(job)
                if error is None:
                    self._checked.add(job)
                elif error != errors[job]:
                    logger.warning("cannot make the consumer of job %s: %s", job, error)
                told[job] = error
        finally:
            changed = sorted(job for job, error in told.items() if error != errors[job])
            if changed:
                async with self._database.acquire() as connection:
                    await connection.execute(
                        consumer_queries["note_errors"], changed, [told[job] for job in changed]
                    )

    async def _ensure(self, job: str) -> str | None:
        try:
            await ensure_consumer(self._broker, job_consumer(job, self._delivery))
        except ApiError as error:
            return str(error)
        return None

    async def _delete(self, jobs: list[str]) -> None:
        for job in jobs:
            await delete_consumer(self._broker, subjects.RUNS_STREAM, subjects.worker_consumer(job))
            self._checked.discard(job)
            self._tried.pop(job, None)
        if jobs:
            logger.info("deleted the consumers of jobs not declared: %s", ", ".join(jobs))
