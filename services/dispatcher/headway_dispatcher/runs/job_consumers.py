"""A durable consumer for every declared job, and none for other jobs.

Heartbeats do not create consumers: a worker may name any job, and a slow JetStream API must not
delay the reply to a heartbeat. A job is declared when the scheduler announces it or queues work.
"""

from headway_contract import subjects
from headway_jetstream_kit import Broker
from headway_jetstream_kit.connection import ApiError
from headway_jetstream_kit.provisioning import consumer_names, delete_consumer, ensure_consumer
from headway_postgres_kit import Database
from headway_service_kit.passes import Wakeup
from headway_tracing.log import get_logger

from headway_dispatcher.provisioning import job_consumer
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.store import consumer_queries

log = get_logger(__name__)


class JobConsumers:
    """Creates and deletes the consumers of jobs, for one dispatcher process."""

    def __init__(
        self, database: Database, broker: Broker, settings: DispatcherSettings, wakeup: Wakeup
    ) -> None:
        self._database = database
        self._broker = broker
        self._settings = settings
        self._wakeup = wakeup
        # Jobs whose consumer has the right settings.
        self._checked: set[str] = set()

    def check_again(self) -> None:
        """Check every consumer again, because streams were recreated."""
        self._checked.clear()
        self._wakeup.call()

    async def run_once(self) -> None:
        """Delete unneeded consumers and create missing ones."""
        # Consumers first: a consumer that is created after this reading is never deleted.
        names = await consumer_names(self._broker, subjects.RUNS_STREAM)
        existing = {job for name in names if (job := subjects.job_of_consumer(name)) is not None}
        async with self._database.acquire() as connection:
            rows = await connection.fetch(consumer_queries["jobs"], sorted(existing))
        unneeded = sorted(existing - {row["name"] for row in rows if row["needed"]})
        for job in unneeded:
            await delete_consumer(self._broker, subjects.RUNS_STREAM, subjects.worker_consumer(job))
        if unneeded:
            log.info("consumers of undeclared jobs deleted", jobs=", ".join(unneeded))
        self._checked &= existing.difference(unneeded)
        for row in rows:
            if row["needed"] and row["name"] not in self._checked:
                await self._create(row["name"], row["error"])

    async def _create(self, job: str, known_error: str | None) -> None:
        """Create or update a consumer; store for `doctor` why that is impossible."""
        error: str | None = None
        try:
            await ensure_consumer(self._broker, job_consumer(job, self._settings))
            self._checked.add(job)
        except ApiError as refused:
            error = str(refused)
            if error != known_error:
                log.warning("consumer not created", job=job, error=error)
        if error != known_error:
            async with self._database.acquire() as connection:
                await connection.execute(consumer_queries["note_error"], job, error)
