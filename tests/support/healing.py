"""Messages that are lost, and a dispatcher that hears none of them."""

import msgspec
from headway import App
from headway_contract import subjects
from headway_contract.reconcile import ReconcileAnswer, ReconcileQuestion
from headway_contract.settled import WorkSettled
from headway_contract.work import WorkQueued
from headway_jetstream_kit.provisioning import consumer_info

from support.cadences import when_made_due
from support.work_events import stored_events
from support.world import until

QUICK = {"ask_after_seconds": 0.4}


def many(count: int) -> App:
    """An app of so many manifests, which fire together."""
    app = App("test")

    @app.job("job", group="ops")
    async def job(ctx): ...

    app.schedule_many(
        "many", job=job, items=[(f"n{i}", None) for i in range(count)], when=when_made_due()
    )
    return app


async def stored_work(world) -> list[WorkQueued]:
    """Every piece of work that waits in the stream, and again for each time it is there."""
    return await stored_events(world.broker, subjects.WORK_STREAM, WorkQueued)


async def stored_outcomes(world) -> list[WorkSettled]:
    """Every outcome that was told."""
    return await stored_events(world.broker, subjects.SETTLED_STREAM, WorkSettled)


async def deaf_dispatcher(world, *, knows_limits: bool = True, **settings):
    """A dispatcher that answers questions and takes nothing in."""
    dispatcher = await world.dispatcher(**settings)
    await dispatcher.end_pass("intake")
    if knows_limits:
        # Otherwise its limits are told again first, and it does not take them in either.
        await world.value("INSERT INTO dispatcher.group_limit (name, version) VALUES ('ops', 9999)")
        await world.value("INSERT INTO dispatcher.job_limit (name, version) VALUES ('job', 9999)")

    async def has_no_pull_open() -> bool:
        info = await consumer_info(world.broker, subjects.WORK_STREAM, subjects.WORK_CONSUMER)
        return info["num_waiting"] == 0

    await until(has_no_pull_open, within=10, what="its last pull is over")
    return dispatcher


async def ask(world, **question) -> ReconcileAnswer:
    """Return a dispatcher's answer to the scheduler's question."""
    reply = await world.broker.client.request(
        subjects.RECONCILE_QUESTION,
        msgspec.json.encode(ReconcileQuestion(**question)),
        timeout=5,
    )
    return msgspec.json.decode(reply.data, type=ReconcileAnswer)


async def purge(world, stream: str) -> None:
    """Lose all that is in a stream."""
    await world.broker.api(f"STREAM.PURGE.{stream}")
