"""Maintenance windows: no work starts; the misfire policy decides about missed times."""

from datetime import timedelta

import pytest
import pytest_asyncio
from headway import App, catch_up, every
from headway_contract.manifests import PauseRequest, ResumeRequest
from headway_contract.work import ManifestChanged
from headway_errors import NotFound, Rejected
from headway_relay import Handover
from headway_scheduler.explain.explain import explain
from headway_scheduler.lookup import find_manifest
from headway_scheduler.operate import pause
from headway_scheduler.operate.pause import Windows
from headway_service_kit.passes import Wakeup
from support.timeline import START, Timeline

ALL = {"all": True}


@pytest_asyncio.fixture
async def timeline(database) -> Timeline:
    made = Timeline(database)
    app = App("test")

    @app.job("job", group="ops")
    def job(ctx): ...

    ten = every(minutes=10)
    app.schedule("once", job=job, when=ten, labels={"team": "data"})
    app.schedule("never", job=job, when=ten, misfire="skip", labels={"team": "data", "eu": "1"})
    app.schedule("two", job=job, when=ten, misfire=catch_up(2), group="mail")
    app.manifest("two").then("child", job=job, group="mail")
    await made.declare(app)
    return made


async def pause_manifest(timeline, **fields):
    return await timeline.do(pause.pause, PauseRequest(actor="me", **fields))


async def resume(timeline, **fields):
    return await timeline.do(pause.resume, ResumeRequest(actor="me", **fields))


async def test_missed_times_are_handled_by_each_policy_and_shown_before(timeline):
    paused = await pause_manifest(timeline, **ALL, reason="new disks")
    assert (paused.count, paused.text) == (4, "4 manifests paused until they are resumed")
    for minutes in (10, 20, 35):
        await timeline.tick(minutes=minutes)
    assert await timeline.rows("SELECT FROM scheduler.work") == []
    assert await timeline.ledger("once") == []
    foreseen = await resume(timeline, **ALL, dry_run=True)
    assert await timeline.rows("SELECT FROM scheduler.work") == []
    effects = {effect.manifest: effect for effect in foreseen.manifests}
    assert (foreseen.count, foreseen.fires) == (4, 3)
    ten = timedelta(minutes=10)
    assert effects["once"].fires == [START + 3 * ten]
    assert (effects["never"].fires, effects["never"].passed) == ([], 3)
    assert effects["two"].fires == [START + 2 * ten, START + 3 * ten]
    assert "3 due times passed; by its misfire policy 'skip' none" in effects["never"].text
    done = await resume(timeline, **ALL)
    assert (done.manifests, done.fires, done.dry_run) == (foreseen.manifests, 3, False)
    reason = "paused: new disks"
    assert await timeline.ledger("once") == [("10-20", "skipped", reason), ("30", "queued", None)]
    assert await timeline.ledger("never") == [("10-30", "skipped", reason)]
    assert await timeline.ledger("two") == [
        ("10", "skipped", reason),
        ("20", "queued", None),
        ("30", "owed", "still_outstanding"),
    ]
    await timeline.tick(minutes=40)
    assert (await timeline.ledger("never"))[-1] == ("40", "queued", None)
    audit = await timeline.rows(
        "SELECT type, source, subject, data FROM scheduler.history WHERE source = 'operator/me'"
        " AND subject = 'once' ORDER BY id"
    )
    assert [(row["type"], row["data"]) for row in audit] == [
        ("headway.manifest.paused.v1", {"until": None, "reason": "new disks"}),
        ("headway.manifest.resumed.v1", {}),
    ]


async def test_manifests_are_chosen_by_name_group_label_or_all(timeline):
    async def chosen(**fields) -> list[str]:
        answer = await pause_manifest(timeline, dry_run=True, **fields)
        assert answer.text.endswith("would be paused until they are resumed")
        return [effect.manifest for effect in answer.manifests]

    assert await chosen(manifests=["two", "once"]) == ["once", "two"]
    assert await chosen(group="mail") == ["child", "two"]
    assert await chosen(labels={"team": "data"}) == ["never", "once"]
    assert await chosen(labels={"team": "data", "eu": "1"}) == ["never"]
    assert len(await chosen(all=True)) == 4
    assert (await timeline.manifest("once"))["paused_at"] is None
    for wrong in ({}, {"group": "mail", "all": True}, {"labels": {"team": "x"}}):
        with pytest.raises(Rejected):
            await pause_manifest(timeline, **wrong)
    with pytest.raises(NotFound, match="did you mean 'once'"):
        await pause_manifest(timeline, manifests=["onse"])
    with pytest.raises(Rejected, match="has passed"):
        await pause_manifest(timeline, all=True, until=START)
    nothing = await resume(timeline, all=True)
    assert (nothing.count, nothing.text) == (0, "no selected manifest is paused")


async def test_a_window_ends_by_itself(timeline):
    until = START + timedelta(minutes=25)
    await pause_manifest(timeline, manifests=["once"], until=until, reason="backup")
    windows = Windows(timeline.database, relay=Handover(), tick=Wakeup())
    assert await windows.run_once() == 25 * 60
    await timeline.tick(minutes=20)
    assert await windows.run_once() == 5 * 60
    timeline.at(minutes=26)
    assert await windows.run_once() == 0.0
    await timeline.tick()
    assert await timeline.ledger("once") == [
        ("10", "skipped", "paused: backup"),
        ("20", "queued", None),
    ]
    assert await windows.run_once() is None
    [row] = await timeline.rows(
        "SELECT source FROM scheduler.history WHERE type = 'headway.manifest.resumed.v1'"
    )
    assert row["source"] == "headway/scheduler"


async def test_pausing_again_moves_the_end_and_keeps_the_beginning(timeline):
    await pause_manifest(timeline, manifests=["once"], until=START + timedelta(minutes=5))
    timeline.at(minutes=4)
    [again] = (await pause_manifest(timeline, manifests=["once"], reason="longer")).manifests
    assert (again.paused_at, again.paused_until, again.reason) == (START, None, "longer")


async def test_pausing_again_in_the_same_way_changes_nothing(timeline):
    window = {"manifests": ["once"], "until": START + timedelta(hours=1), "reason": "disks"}
    for _ in range(2):
        assert (await pause_manifest(timeline, **window)).count == 1
    await pause_manifest(timeline, **{**window, "reason": "more disks"})
    await resume(timeline, manifests=["once"])
    await pause_manifest(timeline, **{**window, "reason": "more disks"})
    rows = await timeline.rows(
        "SELECT data ->> 'reason' AS reason FROM scheduler.history"
        " WHERE type = 'headway.manifest.paused.v1' ORDER BY id"
    )
    assert [row["reason"] for row in rows] == ["disks", "more disks", "more disks"]


async def test_the_dispatcher_holds_what_waits_and_what_is_triggered_runs(timeline):
    await timeline.tick(minutes=10)
    await timeline.settle("once")
    await pause_manifest(timeline, manifests=["once"])
    answer = await timeline.trigger("once")
    assert answer.result == "queued"
    await resume(timeline, manifests=["once"])
    switched = await timeline.outbox(ManifestChanged)
    assert [change.enabled for change in switched] == [False, True]


async def test_a_dependent_follows_the_success_of_meanwhile(timeline):
    await pause_manifest(timeline, manifests=["child"])
    await timeline.tick(minutes=10)
    await timeline.settle("two")
    assert await timeline.ledger("child") == []
    [effect] = (await resume(timeline, manifests=["child"], dry_run=True)).manifests
    assert (effect.follows, effect.fires) == (True, [])
    await resume(timeline, manifests=["child"])
    assert await timeline.ledger("child") == [("success:1", "queued", None)]


async def test_work_under_way_ends_and_its_times_are_accounted_for_up_to_the_pause(timeline):
    await timeline.tick(minutes=10)
    timeline.at(minutes=25)
    await pause_manifest(timeline, manifests=["once"])
    timeline.at(minutes=31)
    await timeline.settle("once")
    assert await timeline.under_way("once") == []
    timeline.at(minutes=41)
    await resume(timeline, manifests=["once"])
    assert await timeline.ledger("once") == [
        ("10", "queued", None),
        ("20", "skipped", "still_outstanding"),
        ("30", "skipped", "paused"),
        ("40", "queued", None),
    ]


async def test_a_paused_manifest_that_is_disabled_stays_disabled(timeline):

    await pause_manifest(timeline, manifests=["once"])
    await timeline.change("once", enabled=False)
    timeline.at(minutes=15)
    [effect] = (await resume(timeline, manifests=["once"])).manifests
    assert effect.text == "it stays held: manifest_disabled"
    await timeline.change("once", enabled=True)
    assert await timeline.ledger("once") == [("10", "skipped", "manifest_disabled")]


async def test_explain_names_the_pause(timeline):
    await pause_manifest(timeline, manifests=["once"], reason="new disks")
    timeline.at(minutes=15)

    async def explained(**at) -> str:
        async with timeline.database.acquire() as connection:
            row = await find_manifest(connection, "once")
            instant = START + timedelta(**at) if at else None
            answer = await explain(connection, row, at=instant, now=timeline.clock.at, kept_days=30)
        return answer.text

    assert "It is paused since 2027-03-01 12:00:00 UTC by me (new disks)" in await explained()
    assert "headway resume once" in await explained(minutes=10)
    timeline.at(minutes=25)
    await resume(timeline, manifests=["once"])
    assert "it was paused then (new disks)" in await explained(minutes=10)
