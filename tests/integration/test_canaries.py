"""Canaries of dead letters: what they retry, when they stop, and in whose name."""

from uuid import UUID

import pytest_asyncio
from headway.client.client import Client
from headway.client.nats_control import NatsControl
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


async def test_where_it_stopped_is_known_after_a_restart(world, app, canaries):
    fingerprint = await fail(world, 13)
    app.broken = False
    begun = await canaries.begin(fingerprint, actor="grace")
    await world.until("SELECT count(*) FROM dispatcher.answered")
    await canaries.stop()
    await world.until_settled()
    retried = await world.value(
        "SELECT count(*) FROM dispatcher.dead_letter WHERE state = 'retried'"
    )
    restarted = Canaries(world.database, NatsControl(world.broker))
    assert restarted.read(begun.id) is None
    told = await restarted.find(begun.id)
    assert told is not None
    assert (told.state, told.awaiting, told.actor) == ("stopped", 13, "grace")
    assert "Begin another" in told.reason
    assert sum(step.fates.get("completed", 0) for step in told.steps) == retried < 13
    another = await restarted.begin(told.fingerprint, actor="grace")
    assert another.id != begun.id
    assert (await ended(restarted, another.id)).state == "finished"
    assert await restarted.find(UUID(int=1)) is None
    await world.until_settled()


async def test_it_is_begun_and_read_over_the_api(world, app, console):
    fingerprint = await fail(world, 2)
    app.broken = False
    path, key = "/api/v1/dead-letters/canaries", {"Idempotency-Key": "k"}
    asked = {"fingerprint": fingerprint}
    async with console.signed_in("operator") as client:
        begun = (await client.post(path, json=asked, headers=key)).json()

        async def finished():
            told = (await client.get(f"{path}/{begun['id']}")).json()
            return told["state"] == "finished"

        await until(finished, within=20, what="the canary has finished")
        told = (await client.get(f"{path}/{begun['id']}")).json()
        assert [step["fates"] for step in told["steps"]] == [{"completed": 1}] * 2 + [{}]
        assert told["actor"] == "ada-operator"
        assert (await client.post(path, json=asked, headers=key)).json() == told
        other = await client.post(path, json={"fingerprint": "other"}, headers=key)
        assert (other.status_code, "other parameters" in other.text) == (409, True)
        stopped = await client.post(f"{path}/{begun['id']}/stop")
        assert stopped.json()["state"] == "finished"
        assert (await client.get(f"{path}/{UUID(int=1)}")).status_code == 404
    await world.until_settled()
