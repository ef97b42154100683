"""A delete that is sent again after its reply was lost."""

import asyncio

import pytest
from headway import App, Client, every, manual
from headway.define.definitions import API_OWNER, Definitions, ManifestDefinition
from headway_contract.manifests import ChangeRequest, DeleteRequest, TriggerRequest
from headway_decisions.timing.cadence import Every
from headway_decisions.timing.timing import Timing
from headway_errors import NotFound, Rejected
from headway_scheduler.operate import changes, triggers
from headway_scheduler.store import DECLARE_LOCK

pytestmark = pytest.mark.thorough


def app_with(*names: str) -> App:
    app = App("billing")
    app.job("job", group="ops")(lambda ctx: None)
    for name in names:
        app.schedule(name, job="job", when=every(hours=1))
    return app


async def make(timeline, name: str) -> None:
    """Create a manifest at run time."""
    await timeline.declare(app_with())
    made = ManifestDefinition(
        external_id=name, job="job", group="ops", timing=Timing(cadence=Every(3600))
    )
    await timeline.declare(Definitions(owner=API_OWNER, manifests=[made]), prune="keep")


REQUESTS = [
    (changes.delete, DeleteRequest(manifest="x", actor="bob")),
    (changes.change, ChangeRequest(manifest="x", enabled=True)),
    (triggers.trigger, TriggerRequest(manifest="x")),
]


@pytest.mark.parametrize(("act", "request_again"), REQUESTS, ids=["delete", "enable", "trigger"])
@pytest.mark.parametrize("confirmed", [False, True])
async def test_requests_for_a_deleted_manifest_name_actor_and_time(
    timeline, act, request_again, confirmed
):
    await make(timeline, "x")
    timeline.at(minutes=5)
    await timeline.do(changes.delete, DeleteRequest(manifest="x", actor="ada"))
    timeline.at(minutes=9)
    if confirmed:
        await timeline.confirm_prunes()
    with pytest.raises(NotFound) as caught:
        await timeline.do(act, request_again)
    assert str(caught.value) == (
        "there is no manifest 'x': it was deleted at 2027-03-01 12:05:00 UTC by ada"
    )


async def test_a_manifest_that_its_application_dropped_names_the_application(timeline):
    await timeline.declare(app_with("x", "y"))
    await timeline.declare(app_with("y"))
    with pytest.raises(NotFound, match=r"12:00:00 UTC by the application 'billing'$"):
        await timeline.trigger("x")
    with pytest.raises(NotFound, match="no manifest 'yy': did you mean 'y'"):
        await timeline.trigger("yy")


async def test_a_manifest_that_is_declared_again_is_not_deleted(timeline):
    """A delete waits for the declaration in progress."""
    await timeline.declare(app_with("x"), prune="disable")
    await timeline.declare(app_with(), prune="disable")
    async with timeline.database.transaction() as declaring:
        await declaring.execute("SELECT pg_advisory_xact_lock($1)", DECLARE_LOCK)
        deleting = asyncio.create_task(
            timeline.do(changes.delete, DeleteRequest(manifest="x", actor="ada"))
        )
        while not await timeline.rows(
            "SELECT FROM pg_stat_activity WHERE wait_event = 'advisory'"
            " AND datname = current_database()"
        ):
            assert not deleting.done()
        await declaring.execute("UPDATE scheduler.manifest SET undeclared_at = NULL")
    with pytest.raises(Rejected, match="is declared by the application 'billing'"):
        await deleting


async def test_the_same_key_deletes_once(world, client):
    await world.scheduler(app_with(), tick="off")
    for name in ("x", "y"):
        await client.schedule(name, job="job", when=manual())
    first = await client.delete("x", key="k")
    assert await client.delete("x", key="k") == first
    await client.schedule("x", job="job", when=manual())
    assert await client.delete("x", key="k") == first
    assert (await client.manifest("x")).status.enabled, "the new manifest stays"
    with pytest.raises(Rejected, match=r"the key 'k' was used at .* with other parameters"):
        await client.delete("y", key="k")
    await client.delete("x", key="another")
    with pytest.raises(NotFound, match=r"'x': it was deleted at .* UTC by ada"):
        await client.delete("x")


async def test_over_http_the_key_is_a_header_or_a_parameter(world, console):
    await world.scheduler(app_with(), tick="off")
    url, key = "/api/v1/manifests/x", {"Idempotency-Key": "k"}
    async with console.signed_in("admin") as web:
        await web.put(url, json={"job": "job", "manual": True})
        first = await web.delete(url, headers=key)
        again = [await web.delete(url, headers=key), await web.delete(url, params={"key": "k"})]
        both = await web.delete(url, headers=key, params={"key": "other"})
        without = await web.delete(url)
    assert first.status_code == 200, first.text
    assert [(reply.status_code, reply.json()) for reply in again] == [(200, first.json())] * 2
    assert both.status_code == 422
    assert (without.status_code, "by ada-admin" in without.json()["detail"]) == (404, True)
    async with Client(console.url, token=console.tokens["admin"]) as client:
        assert (await client.delete("x", key="k")).text == first.json()["text"]


async def test_the_console_offers_a_delete_only_for_undeclared_manifests(world, console):
    await world.declare(app_with("x", "y"))
    await world.declare(app_with("y"), prune="keep")
    await world.scheduler(tick="off")
    async with console.signed_in("admin") as web:
        pages = [await web.get(f"/manifests/{name}") for name in ("x", "y")]
        assert ["/delete" in page.text for page in pages] == [True, False]
        for words in ("x: will be deleted when", "x&#39;: it was deleted at "):
            reply = await web.post("/manifests/x/delete")
            assert (reply.status_code, reply.headers["location"]) == (303, "/manifests")
            assert words in (await web.get("/manifests")).text
