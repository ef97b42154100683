"""A trigger that the overlap policy refuses: the same reason everywhere, and one decision."""

import asyncio

import pytest
from headway import App, allow, manual
from headway_clock import utc_now
from headway_console.reading.manifests import read_manifest
from headway_console.reading.system import read_overview
from headway_contract.manifests import TriggerRequest
from headway_contract.work import WorkBroughtForward
from headway_errors import Conflict
from headway_scheduler.explain.explain import explain
from headway_scheduler.lookup import find_manifest
from headway_scheduler.operate import triggers


def app_of(overlap="skip", hold=None) -> App:
    app = App("test")

    @app.job("job")
    async def job(ctx) -> None:
        await hold.wait()

    app.schedule("a", job="job", when=manual(), overlap=overlap)
    return app


async def test_a_refusal_is_a_conflict_for_clients_and_pages_and_stays_one(world, client, console):
    hold = asyncio.Event()
    app = app_of(hold=hold)
    await world.serve(app)
    await world.scheduler(app)
    first = await client.trigger("a")
    await world.until("SELECT count(*) FROM dispatcher.run WHERE state = 'in_progress'")
    with pytest.raises(Conflict, match=f"because work {first.work} of it was under way") as once:
        await client.trigger("a", key="k")
    [result] = await client.change_many("a", action="run")
    assert (result.done, "its overlap policy is 'skip'" in result.text) == (False, True)
    async with console.signed_in("operator") as browser:
        reply = await browser.post("/api/v1/manifests/a/trigger", json={})
        assert (reply.status_code, reply.json()["type"]) == (409, "urn:headway:problem:refused")
        await browser.post("/manifests/a/run")
        page = await browser.get("/manifests/a")
        assert "flash bad" in page.text
        assert "was under way" in page.text
    text = (await client.explain("a")).text
    assert "a trigger by ada-operator was refused: earlier work of it was still under way" in text
    assert f"Work {first.work} (of manifest 'a', job 'job', group 'job') runs since" in text
    hold.set()
    await world.until_settled()
    with pytest.raises(Conflict) as again:
        await client.trigger("a", key="k")
    assert str(again.value) == str(once.value)
    decisions = await world.rows(
        "SELECT decision, reason FROM scheduler.occurrence ORDER BY reason"
    )
    refused = [row for row in decisions if row["decision"] == "skipped"]
    assert len(refused) == 4
    assert {row["reason"] for row in refused} == {"still_outstanding"}


@pytest.mark.parametrize(
    ("overlap", "begun", "result"),
    [
        ("skip", 0, "brought_forward"),
        ("skip", 1, "refused"),
        (allow(2), 0, "queued"),
        ("queue_one", 1, "owed"),
        ("cancel_running", 1, "owed"),
    ],
)
async def test_the_policy_decides_what_a_trigger_does_while_work_is_under_way(
    timeline, overlap, begun, result
):
    await timeline.declare(app_of(overlap))
    first = await timeline.trigger()
    answer = await timeline.trigger(begun=[first.work][:begun])
    assert answer.result == result


async def test_the_oldest_work_that_waits_is_brought_forward(timeline):
    await timeline.declare(app_of(allow(2)))
    first, second = await timeline.trigger(), await timeline.trigger()
    answer = await timeline.trigger(begun=[first.work])
    assert (answer.result, answer.work) == ("brought_forward", second.work)
    assert [found.work for found in await timeline.outbox(WorkBroughtForward)] == [second.work]
    assert (await timeline.trigger(begun=[first.work, second.work])).result == "refused"


async def test_nothing_is_decided_before_the_state_of_the_work_is_known(timeline):
    await timeline.declare(app_of())
    first = await timeline.trigger()
    async with timeline.database.transaction() as connection:
        request = TriggerRequest(manifest="a", key="k")
        answer = await triggers.trigger(connection, request, now=utc_now(), begun=None)
    assert answer == triggers.Busy(works=[first.work])
    assert len(await timeline.ledger("a")) == 1


async def test_a_delayed_trigger_names_its_author_and_its_time(timeline):
    await timeline.declare(app_of())
    await timeline.trigger(actor="ada", delay_seconds=300)
    await timeline.trigger(actor="bob")

    async def explained() -> str:
        async with timeline.database.acquire() as connection:
            row = await find_manifest(connection, "a")
            answer = await explain(connection, row, at=None, now=timeline.clock.at, kept_days=30)
        return answer.text

    delayed = "At 2027-03-01 12:00:00+00:00 a trigger by ada was delayed until"
    text = await explained()
    assert f"{delayed} 2027-03-01 12:05:00+00:00: it runs then" in text
    assert "waits for room" not in text
    await timeline.tick(minutes=5)
    text = await explained()
    assert "a trigger by ada waits for room: it runs as soon as the work under way" in text
    await timeline.settle("a")
    await timeline.tick()
    assert "a trigger by ada fired" in await explained()


async def test_a_blocked_manifest_has_no_next_fire(timeline, reader):
    await timeline.declare(app_of())
    await timeline.trigger(delay_seconds=300)
    await timeline.trigger()
    _, letter = await timeline.dead_letter("a")
    await timeline.tick()
    assert (await timeline.manifest("a"))["wake_at"] is not None
    status = (await read_manifest(reader, "a")).status
    assert (status.blocked_by, status.next_fire_at) == (letter, None)
    assert (await read_overview(reader, now=utc_now(), heard_since=utc_now())).coming == []
