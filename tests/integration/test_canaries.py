"""Canaries of dead letters: the letters they retry, when they stop, and their actor."""

from uuid import UUID

import pytest
import pytest_asyncio
from headway_contract import subjects
from headway_contract.dead_letters import BeginCanaryRequest, CanaryStatus, StopCanaryRequest
from headway_errors import NotFound
from headway_jetstream_kit.ask import ask
from support.troubled_app import TroubledApp
from support.world import until

RETRIED = "SELECT count(*) FROM dispatcher.dead_letter WHERE state = 'retried'"


@pytest_asyncio.fixture
async def app(world) -> TroubledApp:
    """A system in which shipping fails until the test sets `broken` to false."""
    made = TroubledApp()
    await world.dispatcher()
    await world.scheduler(made.app, tick="off")
    await world.worker(made.app)
    return made


async def fail(world, many: int, item: str = "lamp") -> str:
    """Make dead letters of one failure; returns its fingerprint."""
    async with world.client("ada") as client:
        for _ in range(many):
            await client.enqueue("ship", {"item": item})
    await world.until("SELECT count(*) = $1 FROM dispatcher.dead_letter", many)
    return str(await world.value("SELECT fingerprint FROM dispatcher.dead_letter LIMIT 1"))


async def begin(world, fingerprint: str, *, actor: str = "grace") -> CanaryStatus:
    request = BeginCanaryRequest(fingerprint=fingerprint, actor=actor)
    return await ask(world.broker, subjects.BEGIN_CANARY_REQUEST, request, CanaryStatus, timeout=5)


async def stop(world, canary: UUID) -> CanaryStatus:
    """Stop a canary; a canary that has ended is returned unchanged."""
    request = StopCanaryRequest(canary=canary, actor="grace")
    return await ask(world.broker, subjects.STOP_CANARY_REQUEST, request, CanaryStatus, timeout=5)


async def ended(world, canary: UUID) -> CanaryStatus:
    await world.until("SELECT state <> 'running' FROM dispatcher.canary WHERE id = $1", canary)
    return await stop(world, canary)


async def test_all_are_retried_once_the_failure_is_gone(world, app):
    fingerprint = await fail(world, 13)
    app.broken = False
    begun = await begin(world, fingerprint)
    again = await begin(world, fingerprint, actor="ada")
    assert again.id == begun.id, "one canary per failure at a time"
    canary = await ended(world, begun.id)
    assert (canary.state, canary.awaiting) == ("finished", 13)
    assert [step.fates for step in canary.steps] == [
        {"completed": 1},
        {"completed": 10},
        {"completed": 2},
    ]
    actors = await world.rows("SELECT DISTINCT actor FROM dispatcher.dead_letter")
    assert [row["actor"] for row in actors] == ["grace"]
    await world.until_settled()


async def test_it_stops_when_the_failure_comes_back(world, app):
    fingerprint = await fail(world, 3)
    begun = await begin(world, fingerprint)
    canary = await ended(world, begun.id)
    assert canary.state == "stopped"
    assert "the same failure returned" in canary.reason
    assert await world.value(RETRIED) == 1
    await world.until_settled()


async def test_nothing_to_retry_is_a_canary_that_has_finished(world, app):
    begun = await begin(world, "f00dfeedcafe")
    canary = await ended(world, begun.id)
    assert (canary.state, [step.fates for step in canary.steps]) == ("finished", [{}, {}, {}])


@pytest.mark.thorough
async def test_another_dispatcher_continues_it(world):
    app = TroubledApp()
    first = await world.dispatcher()
    await world.scheduler(app.app, tick="off")
    await world.worker(app.app)
    fingerprint = await fail(world, 13)
    app.broken = False
    await world.stop_workers()
    begun = await begin(world, fingerprint)
    await world.until(f"SELECT ({RETRIED}) = 1")
    await first.stop()
    await world.serve(app.app)
    canary = await ended(world, begun.id)
    assert (canary.state, canary.actor) == ("finished", "grace")
    assert sum(step.fates.get("completed", 0) for step in canary.steps) == 13
    await world.until_settled()


async def test_a_person_stops_it(world):
    app = TroubledApp()
    await world.dispatcher()
    await world.scheduler(app.app, tick="off")
    await world.worker(app.app)
    fingerprint = await fail(world, 3)
    await world.stop_workers()
    begun = await begin(world, fingerprint)
    await world.until(f"SELECT ({RETRIED}) = 1")
    canary = await stop(world, begun.id)
    assert (canary.state, canary.reason) == ("stopped", "stopped by grace")
    app.broken = False
    await world.worker(app.app)
    await world.until_settled()
    assert await world.value(RETRIED) == 1, "the work in progress continued, and nothing followed"
    with pytest.raises(NotFound, match="there is no canary"):
        await stop(world, UUID(int=1))


async def test_it_is_begun_and_read_over_the_api(world, app, console):
    fingerprint = await fail(world, 2)
    app.broken = False
    path, key = "/api/v1/dead-letters/canaries", {"Idempotency-Key": "k"}
    body = {"fingerprint": fingerprint}
    async with console.signed_in("operator") as client:
        begun = (await client.post(path, json=body, headers=key)).json()

        async def finished():
            canary = (await client.get(f"{path}/{begun['id']}")).json()
            return canary["state"] == "finished"

        await until(finished, within=20, what="the canary has finished")
        canary = (await client.get(f"{path}/{begun['id']}")).json()
        assert [step["fates"] for step in canary["steps"]] == [{"completed": 1}] * 2 + [{}]
        assert canary["actor"] == "ada-operator"
        assert (await client.post(path, json=body, headers=key)).json() == canary
        other = await client.post(path, json={"fingerprint": "other"}, headers=key)
        assert (other.status_code, "other parameters" in other.text) == (409, True)
        stopped = await client.post(f"{path}/{begun['id']}/stop")
        assert stopped.json()["state"] == "finished"
        assert (await client.get(f"{path}/{UUID(int=1)}")).status_code == 404
    await world.until_settled()
