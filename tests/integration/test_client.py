"""The client: how things stand, over NATS alone."""

import pytest
from headway import App, Client, every
from headway.client import RequestFailed
from headway_contract import subjects
from headway_scheduler import desk


def app_with(count: int) -> App:
    app = App("test")
    app.job("job", group="ops")(lambda ctx: None)
    for number in range(count):
        app.schedule(f"m-{number:04}", job="job", when=every(hours=1))
    return app


async def test_manifests_come_in_pages_and_in_order(world, nats_url, monkeypatch):
    monkeypatch.setattr("headway.client.ManifestsQuestion", small_pages)
    await world.scheduler(app_with(25))
    async with Client(nats_url) as client:
        found = await client.manifests()
    assert [one.external_id for one in found] == [f"m-{number:04}" for number in range(25)]
    assert {(one.owner, one.job, one.group, one.enabled, one.declared) for one in found} == {
        ("test", "job", "ops", True, True)
    }
    assert all(one.next_due_at is not None for one in found)


def small_pages(after: str):
    return desk.ManifestsQuestion(after=after, limit=10)


async def test_what_is_wrong_is_told(world, nats_url):
    async with Client(nats_url) as client:
        with pytest.raises(RequestFailed, match="no service answers"):
            await client.manifests()
    with pytest.raises(RequestFailed, match="not reachable"):
        async with Client("nats://127.0.0.1:1"):
            pass
    with pytest.raises(RequestFailed, match="not connected"):
        await Client(nats_url).manifests()
    await world.scheduler(app_with(1))
    reply = await world.broker.client.request(
        subjects.MANIFESTS_QUESTION, b'{"limit": 0}', timeout=5
    )
    assert reply.headers["Nats-Service-Error-Code"] == "400"
