"""Maintenance windows: no work starts; the misfire policy decides about missed times."""

from datetime import timedelta
from uuid import UUID

import pytest
import pytest_asyncio
from headway import App, catch_up, every
from headway_contract.manifests import PauseRequest, ResumeRequest
from headway_contract.work import ManifestChanged
from headway_errors import Conflict, Invalid, NotFound, Rejected
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
    return await timeline.do(pause.pause, PauseRequest(**{"actor": "me", **fields}))


async def resume(timeline, **fields):
    return await timeline.do(pause.resume, ResumeRequest(actor="me", **fields))


def windows_of(timeline) -> Windows:
    return Windows(timeline.database, relay=Handover(), tick=Wakeup())


async def held(timeline) -> dict[str, list[UUID]]:
    """Return the pauses that hold each manifest."""
    rows = await timeline.rows(
        "SELECT external_id, pauses FROM scheduler.manifest WHERE pruning_at IS NULL AND paused"
        " ORDER BY external_id"
    )
    return {
        row["external_id"]: [UUID(w["pause"]) for w in row["pauses"] if "ended_at" not in w]
        for row in rows
    }


async def test_missed_times_are_handled_by_each_policy_and_shown_before(timeline):
    paused = await pause_manifest(timeline, **ALL, reason="new disks")
    ends = f"To end this pause: headway resume {paused.pause}"
    assert paused.text == f"4 manifests paused until resumed. {ends}"
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
        (
            "headway.manifest.paused.v1",
            {"pause": str(paused.pause), "until": None, "reason": "new disks"},
        ),
        ("headway.manifest.resumed.v1", {"pause": str(paused.pause)}),
    ]
    audit = await timeline.rows(
        "SELECT type, data FROM scheduler.history WHERE subject = $1 ORDER BY id", str(paused.pause)
    )
    assert [row["type"] for row in audit] == ["headway.pause.created.v1", "headway.pause.ended.v1"]
    assert (audit[0]["data"]["covers"], audit[0]["data"]["manifests"]) == ("all manifests", 4)


async def test_manifests_are_chosen_by_name_group_label_or_all(timeline):
    async def chosen(**fields) -> list[str]:
        answer = await pause_manifest(timeline, dry_run=True, **fields)
        assert answer.text.endswith("would be paused until resumed")
        return [effect.manifest for effect in answer.manifests]

    assert await chosen(manifests=["two", "once"]) == ["once", "two"]
    assert await chosen(group="mail") == ["child", "two"]
    assert await chosen(labels={"team": "data"}) == ["never", "once"]
    assert await chosen(labels={"team": "data", "eu": "1"}) == ["never"]
    assert len(await chosen(all=True)) == 4
    assert not (await timeline.manifest("once"))["paused"]
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
    windows = windows_of(timeline)
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
    assert (await timeline.manifest("once"))["pauses"][0]["ended_at"] == "2027-03-01T12:25:00Z"


async def test_a_short_pause_of_all_does_not_end_a_longer_pause_of_one(timeline):
    longer = await pause_manifest(timeline, manifests=["once"], reason="mine", actor="ada")
    short = {"until": START + timedelta(seconds=8), "reason": "short"}
    foreseen = await pause_manifest(timeline, **ALL, **short, dry_run=True)
    answer = await pause_manifest(timeline, **ALL, **short)
    assert "4 manifests paused until" in answer.text
    for found in (foreseen, answer):
        assert "; other pauses hold 1 of them longer" in found.text
        assert {pause.manifest: pause.paused_until for pause in found.manifests} == {
            **dict.fromkeys(("child", "never", "two"), short["until"]),
            "once": None,
        }
    timeline.at(minutes=1)
    assert await windows_of(timeline).run_once() == 0.0
    assert await held(timeline) == {"once": [longer.pause]}
    await timeline.tick(minutes=10)
    assert await timeline.ledger("once") == []
    assert await timeline.ledger("never") == [("10", "queued", None)]
    # Both pauses are the reason of the time that was due in them.
    await resume(timeline, pauses=[longer.pause])
    assert await timeline.ledger("once") == [("10", "queued", None)]
    assert await held(timeline) == {}


async def test_resume_ends_only_the_pause_that_is_named(timeline):
    everything = await pause_manifest(timeline, **ALL, reason="upgrade")
    team = await pause_manifest(timeline, labels={"team": "data"}, actor="ada")
    group = await pause_manifest(timeline, group="mail")
    one = await pause_manifest(timeline, manifests=["never", "two"])
    answer = await resume(timeline, **ALL, dry_run=True)
    assert (answer.count, answer.still_paused, answer.pauses) == (0, 4, [everything.pause])
    answer = await resume(timeline, **ALL)
    assert (answer.count, answer.still_paused) == (0, 4)
    assert "4 manifests stay paused by other pauses: see 'headway pauses'" in answer.text
    assert await held(timeline) == {
        "child": [group.pause],
        "never": [team.pause, one.pause],
        "once": [team.pause],
        "two": [group.pause, one.pause],
    }
    # Nothing was made for these, so they are refused, with the ids of the pauses that hold them.
    for wrong, words in (
        (ALL, "'child' is paused, but no pause of all manifests is in force"),
        ({"manifests": ["once"]}, "'once' is paused, but no pause names it"),
        ({"group": "ops"}, "no pause of group ops is in force"),
    ):
        with pytest.raises(Conflict, match=words) as refused:
            await resume(timeline, **wrong)
        assert f"headway resume {team.pause}   label team=data, by ada until resumed" in str(
            refused.value
        )
    assert (await resume(timeline, labels={"team": "data"})).count == 1
    answer = await resume(timeline, manifests=["two"])
    assert (answer.count, answer.still_paused) == (0, 1)
    [[changed]] = await timeline.rows(
        "SELECT data FROM scheduler.history WHERE subject = $1 AND type LIKE '%changed.v1'",
        str(one.pause),
    )
    assert changed == {"named": ["never"], "before": {"named": ["never", "two"]}}
    assert await held(timeline) == {
        "child": [group.pause],
        "never": [one.pause],
        "two": [group.pause],
    }
    assert (await resume(timeline, pauses=[one.pause, group.pause])).count == 3
    with pytest.raises(Conflict, match=rf"pause {one.pause} has ended already, at 2027.* by me"):
        await resume(timeline, pauses=[one.pause])
    with pytest.raises(NotFound, match="there is no pause 0000"):
        await resume(timeline, pauses=[UUID(int=7)])
    with pytest.raises(Invalid, match="not both"):
        await resume(timeline, pauses=[one.pause], **ALL)


async def test_of_several_pauses_of_the_same_manifests_none_is_chosen(timeline):
    first = await pause_manifest(timeline, manifests=["once"], reason="first")
    second = await pause_manifest(timeline, manifests=["once"], actor="ada")
    with pytest.raises(Conflict, match="2 pauses were made for 'once'") as refused:
        await resume(timeline, manifests=["once"])
    assert (
        f"headway resume {first.pause}   named manifests, by me until resumed, reason: first"
        in str(refused.value)
    )
    await resume(timeline, pauses=[first.pause])
    assert await held(timeline) == {"once": [second.pause]}


async def test_a_pause_also_covers_manifests_that_match_later(timeline):
    everything = await pause_manifest(timeline, **ALL)
    mail = await pause_manifest(timeline, group="mail")
    app = App("test")

    @app.job("job", group="ops")
    def job(ctx): ...

    ten = every(minutes=10)
    app.schedule("once", job=job, when=ten, group="mail")
    app.schedule("new", job=job, when=ten)
    timeline.at(minutes=15)
    await timeline.declare(app)
    assert await held(timeline) == {
        "once": [everything.pause, mail.pause],
        "new": [everything.pause],
    }
    await resume(timeline, **ALL)
    assert await timeline.ledger("once") == []
    timeline.at(minutes=25)
    other = App("test")
    other.job("job", group="ops")(lambda ctx: None)
    other.schedule("once", job="job", when=ten)
    other.schedule("new", job="job", when=ten)
    await timeline.declare(other)
    await timeline.tick()
    # It left the paused group, and so resumed.
    assert await held(timeline) == {}
    assert await timeline.ledger("once") == [("10", "skipped", "paused"), ("20", "queued", None)]
    entries = await timeline.rows(
        "SELECT source FROM scheduler.history WHERE subject = 'once'"
        " AND type = 'headway.manifest.resumed.v1'"
    )
    assert [row["source"] for row in entries] == ["app/test"]


async def test_a_pause_that_ends_while_no_scheduler_runs_ends_on_time(timeline):
    until = START + timedelta(minutes=25)
    paused = await pause_manifest(timeline, manifests=["never"], until=until, reason="backup")
    timeline.at(minutes=55)
    # At the start the tick may come before the pass that ends pauses.
    await timeline.tick()
    assert await timeline.ledger("never") == []
    assert await windows_of(timeline).run_once() == 0.0
    await timeline.tick(minutes=60)
    assert await timeline.ledger("never") == [
        ("10-50", "skipped", "paused: backup"),
        ("60", "queued", None),
    ]
    [row] = await timeline.rows(
        "SELECT source, occurred_at FROM scheduler.history WHERE type = 'headway.pause.ended.v1'"
    )
    assert row["source"] == "headway/scheduler"
    with pytest.raises(Conflict, match="has ended already"):
        await resume(timeline, pauses=[paused.pause])


async def test_missed_times_after_the_end_of_a_pause_are_not_its_fault(timeline):
    until = START + timedelta(minutes=5)
    await pause_manifest(timeline, manifests=["never"], until=until, reason="backup")
    timeline.at(minutes=35)
    await windows_of(timeline).run_once()
    await timeline.tick()
    assert await timeline.ledger("never") == [("10-30", "skipped", "missed")]


async def test_pausing_again_in_the_same_way_changes_nothing(timeline):
    window = {"manifests": ["once"], "until": START + timedelta(hours=1), "reason": "disks"}
    for _ in range(2):
        assert (await pause_manifest(timeline, **window)).count == 1
    again = await pause_manifest(timeline, **{**window, "reason": "more disks"})
    await resume(timeline, pauses=[again.pause])
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

    [first] = (await held(timeline))["once"]
    one = f"pause {first} (named manifests, by me until resumed, reason: new disks), which 'headway resume"
    assert (
        f"It is paused since 2027-03-01 12:00:00 UTC by {one} {first}' ends." in await explained()
    )
    until = START + timedelta(hours=1)
    everything = await pause_manifest(timeline, **ALL, until=until, reason="upgrade", actor="ada")
    text = await explained(minutes=10)
    assert "by 2 pauses, until the last of them ends: pause" in text
    assert (
        f"{everything.pause} (all manifests, by ada until 2027-03-01 13:00:00 UTC, reason: upgrade)"
        in text
    )
    timeline.at(minutes=25)
    await resume(timeline, pauses=[first, everything.pause])
    assert "it was paused then (new disks)" in await explained(minutes=10)
