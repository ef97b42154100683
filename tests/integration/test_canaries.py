"""Canaries of dead letters: what they retry, when they stop, and in whose name."""

from uuid import UUID

import pytest_asyncio
from headway.client import Client
from headway.nats_control import NatsControl
from headway_console.canaries import Canaries, Progress
from support.troubled_app import TroubledApp
from support.world import until


@pytest_asyncio.fixture
async def app(world) -> TroubledApp:
    """A system in which shipping fails until the test says otherwise."""
    made = TroubledApp()
    await world.dispatcher()
    await world.scheduler(made.app, tick="off")
    await world.worker(made.app)
    return made


@pytest_asyncio.fixture
async def canaries(world):
    made = Canaries(world.database, NatsControl(world.broker))
    yield made
    await made.stop()


async def fail(world, many: int, item: str = "lamp") -> str:
    """So many dead letters of one failure; returns its fingerprint."""
    client = Client(control=NatsControl(world.broker), actor="ada")
    for _ in range(many):
        await client.enqueue("ship", {"item": item})
    await world.until("SELECT count(*) = $1 FROM dispatcher.dead_letter", many)
    return str(await world.value("SELECT fingerprint FROM dispatcher.dead_letter LIMIT 1"))


async def ended(canaries: Canaries, canary: UUID) -> Progress:
    async def ask() -> bool:
        told = canaries.read(canary)
        return told is not None and told.state != "running"

    await until(ask, within=30, what="the canary ends")
    told = canaries.read(canary)
    assert told is not None
    return told


async def test_all_are_retried_once_the_failure_is_gone(world, app, canaries):
    fingerprint = await fail(world, 13)
    app.broken = False
    begun = await canaries.begin(fingerprint, actor="grace")
    again = await canaries.begin(fingerprint, actor="somebody else")
    assert again.id == begun.id, "one canary of a failure at a time"
    told = await ended(canaries, begun.id)
    assert (told.state, told.awaiting) == ("finished", 13)
    assert [step.fates for step in told.steps] == [
        {"completed": 1},
        {"completed": 10},
        {"completed": 2},
    ]
    actors = await world.rows("SELECT DISTINCT actor FROM dispatcher.dead_letter")
    assert [row["actor"] for row in actors] == ["grace"]
    await world.until_settled()


async def test_it_stops_when_the_failure_comes_back(world, app, canaries):
    fingerprint = await fail(world, 3)
    begun = await canaries.begin(fingerprint, actor="grace")
    told = await ended(canaries, begun.id)
    assert told.state == "stopped"
    assert "the same failure came back" in told.reason
    retried = "SELECT count(*) FROM dispatcher.dead_letter WHERE state = 'retried'"
    assert await world.value(retried) == 1
    await world.until_settled()


async def test_nothing_to_retry_is_a_canary_that_has_finished(world, app, canaries):
    begun = await canaries.begin("f00dfeedcafe", actor="grace")
    told = await ended(canaries, begun.id)
    assert (told.state, told.retried) == ("finished", ())


async def test_a_dispatcher_that_does_not_answer_ends_it_with_the_reason(world, canaries):
    begun = await canaries.begin("f00dfeedcafe", actor="grace")
    told = await ended(canaries, begun.id)
    assert told.state == "failed"
    assert "is it running?" in told.reason
