"""Publish to the dispatcher as a scheduler does."""

import base64
from typing import Any
from uuid import UUID, uuid4

from headway import App
from headway_clock import utc_now
from headway_contract import Event, decode, encode, event, subjects
from headway_contract.envelope import EventData
from headway_contract.settled import WorksCompleted
from headway_contract.work import RetryPolicy, WorkCancelRequested
from headway_jetstream_kit import Broker, Puller, Stored
from headway_jetstream_kit.provisioning import consumer_info, stream_info
from headway_jetstream_kit.publish import publish

from support.works import queued
from support.world import until

RETRY = RetryPolicy(attempts=3, interval_seconds=0.1)
ONCE = RetryPolicy(attempts=1)


class WorkPublisher:
    """Publishes to the dispatcher as a scheduler does, and reads the dispatcher's events."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    async def publish(self, data: EventData) -> None:
        body = encode(event(data, id=uuid4(), source="test", subject="x", time=utc_now()))
        assert isinstance(await publish(self.broker, subjects.work("ops"), body), Stored)

    async def queue(self, job: str = "job", **fields: Any) -> UUID:
        """Queue work without a manifest; returns its id."""
        work = fields.pop("work", None) or uuid4()
        given = {"group": "ops", "cause": f"test:{work}", "queued_at": utc_now(), "retry": RETRY}
        await self.publish(queued(work=work, job=job, **{**given, **fields}))
        return work

    async def cancel(self, work: UUID, reason: str = "asked", **fields: Any) -> None:
        """Ask for work to end early."""
        given = {"group": "ops", "reason": reason, "requested_at": utc_now()}
        await self.publish(WorkCancelRequested(work=work, **{**given, **fields}))

    async def events(self, kind: type) -> list[Any]:
        """Return the events of a kind in the stream of settled work."""
        return await stored_events(self.broker, subjects.SETTLED_STREAM, kind)

    async def until_taken_in(self) -> None:
        """Wait until the dispatcher has taken in all messages."""

        async def none_left() -> bool:
            info = await stream_info(self.broker, subjects.WORK_STREAM)
            return info["state"]["messages"] == 0

        await until(none_left, within=20, what="all messages are taken in")


async def stored_events(broker: Broker, stream: str, kind: type) -> list[Any]:
    """Return the events of a kind in a stream, in their order, each as often as it is there.

    Completed work that is packed into one event counts as the event of each piece of work.
    """
    state, found = (await stream_info(broker, stream))["state"], []
    for sequence in range(max(state["first_seq"], 1), state["last_seq"] + 1):
        raw = await broker.api(f"STREAM.MSG.GET.{stream}", {"seq": sequence})
        for item in decode(base64.b64decode(raw["message"]["data"])):
            data = item.data if isinstance(item, Event) else None
            outcomes = data.outcomes() if isinstance(data, WorksCompleted) else [data]
            found += [each for each in outcomes if isinstance(each, kind)]
    return found


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
    query = "SELECT run_id FROM dispatcher.run WHERE state = $1 ORDER BY created_at DESC"
    run = await world.until(query, state, **options)
    return (await world.rows("SELECT * FROM dispatcher.run WHERE run_id = $1", run))[0]


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
