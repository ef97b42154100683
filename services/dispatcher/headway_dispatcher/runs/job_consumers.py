"""A durable consumer for every declared job, and none for other jobs.

Heartbeats do not create consumers: a worker may name any job, and a slow JetStream API must not
delay the reply to a heartbeat. A job is declared when the scheduler announces it or queues work.
"""

from headway_clock import monotonic
from headway_contract import subjects
from headway_decisions.healing import consumer_changes
from headway_jetstream_kit import Broker
from headway_jetstream_kit.connection import ApiError
from headway_jetstream_kit.provisioning import consumer_names, delete_consumer, ensure_consumer
from headway_postgres_kit import Database
from headway_service_kit.passes import Wakeup
from headway_tracing.log import get_logger

from headway_dispatcher.provisioning import delivery_of, job_consumer
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.store import consumer_queries

log = get_logger(__name__)

BATCH = 100


class JobConsumers:
    """Creates and deletes the consumers of jobs, for one dispatcher process."""

    def __init__(
        self, database: Database, broker: Broker, settings: DispatcherSettings, wakeup: Wakeup
    ) -> None:
        self._database = database
        self._broker = broker
        self._delivery = delivery_of(settings)
        self._wakeup = wakeup
        # Jobs whose consumer has the right settings, and when each job was last tried.
        self._checked: set[str] = set()
        self._tried: dict[str, float] = {}

    def check_again(self) -> None:
        """Check every consumer again, because streams were recreated."""
        self._checked.clear()
        self._wakeup.call()

    async def run_once(self) -> float | None:
        """Create a batch of missing consumers and delete a batch of unneeded ones."""
        # Consumers first: a consumer that is created after this reading is never deleted.
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
        missing = changes.make[:BATCH]
        await self._create(missing, {row["name"]: row["error"] for row in rows})
        await self._delete(changes.delete[:BATCH])
        more = max(len(changes.make), len(changes.delete)) > BATCH
        return 0.0 if more and self._checked.issuperset(missing) else None

    async def _create(self, jobs: list[str], known_errors: dict[str, str | None]) -> None:
        """Create consumers; store for `doctor` why one could not be created."""
        changed: dict[str, str | None] = {}
        try:
            for job in jobs:
                self._tried[job] = monotonic()
                error: str | None = None
                try:
                    await ensure_consumer(self._broker, job_consumer(job, self._delivery))
                    self._checked.add(job)
                except ApiError as refused:
                    error = str(refused)
                if error != known_errors[job]:
                    changed[job] = error
                    if error is not None:
                        log.warning("consumer not created", job=job, error=error)
        finally:
            if changed:
                names = sorted(changed)
                errors = [changed[job] for job in names]
                async with self._database.acquire() as connection:
                    await connection.execute(consumer_queries["note_errors"], names, errors)

    async def _delete(self, jobs: list[str]) -> None:
        for job in jobs:
            await delete_consumer(self._broker, subjects.RUNS_STREAM, subjects.worker_consumer(job))
            self._checked.discard(job)
            self._tried.pop(job, None)
        if jobs:
            log.info("consumers of undeclared jobs deleted", jobs=", ".join(jobs))
