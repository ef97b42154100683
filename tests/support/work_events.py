"""Publish to the dispatcher as a scheduler does."""

from uuid import UUID, uuid4

from headway import App
from headway_clock import utc_now
from headway_contract import encode, event, subjects
from headway_contract.work import RetryPolicy, WorkCancelRequested
from headway_jetstream_kit import Broker, Puller, Stored
from headway_jetstream_kit.provisioning import consumer_info
from headway_jetstream_kit.publish import publish

from support.works import queued
from support.world import until

RETRY = RetryPolicy(attempts=3, interval_seconds=0.1)
ONCE = RetryPolicy(attempts=1)


class WorkPublisher:
    """Publishes work and cancel requests as a scheduler does."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def queue(self, job: str, **fields) -> UUID:
        """Queue work without a manifest; returns its id."""
        work = fields.pop("work", None) or uuid4()
        given = {"cause": f"test:{work}", "queued_at": utc_now(), "retry": RETRY}
        await self._tell(queued(work=work, group="ops", job=job, **{**given, **fields}))
        return work

    async def cancel(self, work: UUID, reason: str = "asked") -> None:
        """Ask for work to end early."""
        await self._tell(
            WorkCancelRequested(work=work, group="ops", reason=reason, requested_at=utc_now())
        )

    async def _tell(self, data) -> None:
        body = encode(event(data, id=uuid4(), source="test", subject="x", time=utc_now()))
        assert isinstance(await publish(self._broker, subjects.work("ops"), body), Stored)


async def queue(world, *, job: str = "job", **fields) -> UUID:
    """Queue work in a world, tried once unless said otherwise; returns its id."""
    return await WorkPublisher(world.broker).queue(job, **{"retry": ONCE, **fields})


async def cancel(world, work: UUID, reason: str = "asked") -> None:
    """Ask for work in a world to end early."""
    await WorkPublisher(world.broker).cancel(work, reason)


def app_with(body, **options) -> App:
    """An app whose one job `job` has this body."""
    app = App("test")
    app.job("job", group="ops", **options)(body)
    return app


async def until_run(world, state: str, **options):
    """Wait for a run in a state; returns its row."""
    query = "SELECT run_id FROM dispatcher.metadata WHERE state = $1 ORDER BY created_at DESC"
    run = await world.until(query, state, **options)
    return (await world.rows("SELECT * FROM dispatcher.metadata WHERE run_id = $1", run))[0]


async def order_puller(world, job: str) -> Puller:
    """A puller of a job's orders, as a worker has one, once the consumer is there."""
    name = subjects.worker_consumer(job)

    async def is_there() -> bool:
        return await consumer_info(world.broker, subjects.RUNS_STREAM, name) is not None

    await until(is_there, within=20, what=f"the consumer {name}")
    return Puller(world.broker, subjects.RUNS_STREAM, name)


async def until_given_back(world, job: str) -> None:
    """Wait until an order of a job was delivered again after a nak."""
    consumer = f"{subjects.RUNS_STREAM}.{subjects.worker_consumer(job)}"

    async def is_back() -> bool:
        return (await world.broker.api(f"CONSUMER.INFO.{consumer}"))["num_redelivered"] > 0

    await until(is_back, within=20, what=f"an order of {job} is given back")
