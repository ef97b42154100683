"""Read requests to the scheduler: manifests, groups, previews and the ledger."""

from datetime import UTC, datetime, timedelta

import pytest
from headway import App, daily, every, exclude_days, exclude_range, manual, once, spaced
from headway.client.client import RequestFailed
from headway.define.definitions import ManifestDefinition
from headway_errors import NotFound
from msgspec import convert
from support.cadences import when_made_due

BERLIN = "Europe/Berlin"


def app_with(**cadences) -> App:
    app = App("test")
    app.job("job", group="ops")(lambda ctx: None)
    for external_id, when in cadences.items():
        app.schedule(external_id.replace("_", "-"), job="job", when=when)
    return app


async def test_a_manifest_comes_with_its_definition_as_it_was_declared(world):
    app = app_with(nightly=daily("03:15", tz=BERLIN, jitter=60, overlap="queue_one"))
    app.manifest("nightly").then("after", job="job")
    await world.scheduler(app, tick="off")
    async with world.client("alice") as client:
        await client.change("nightly", attempts=9)
        answer = await client.manifest("nightly")
        child = await client.manifest("after")
    assert answer.status.cadence == "daily at 03:15 (Europe/Berlin)"
    assert answer.touched == ["attempts"]
    declared = {manifest.external_id: manifest for manifest in app.definitions().manifests}
    defined = convert(answer.definition, ManifestDefinition)
    assert defined.retry.attempts == 9
    assert (defined.timing, defined.overlap) == (
        declared["nightly"].timing,
        declared["nightly"].overlap,
    )
    assert convert(child.definition, ManifestDefinition) == declared["after"]


async def test_an_unknown_name_is_refused_with_similar_names(world, client):
    await world.scheduler(app_with(nightly_report=manual(), nightly_backup=manual()), tick="off")
    for method in (client.manifest, client.preview, client.explain, client.ledger):
        with pytest.raises(RequestFailed) as caught:
            await method("nightly-repotr")
        assert str(caught.value).startswith(
            "there is no manifest 'nightly-repotr': did you mean 'nightly-report'"
        )
    with pytest.raises(NotFound, match="control characters"):
        await client.manifest("zzz\x00")


async def test_groups_in_pages(world, client, monkeypatch):
    monkeypatch.setattr("headway.client.http_control._PAGE", 2)
    app = App("test")
    app.job("job")(lambda ctx: None)
    for number in range(5):
        app.schedule(f"m{number}", job="job", when=manual(), group=f"g{number}")
    app.group("g3", max_active=7)
    await world.scheduler(app, tick="off")
    found = await client.groups()
    assert [group.name for group in found] == [f"g{number}" for number in range(5)]
    assert (found[3].max_active, found[3].manifests) == (7, 1)


async def test_a_preview_marks_excluded_and_shifted_times(world, client):
    when = daily("02:30", tz=BERLIN, exclude=exclude_days("sat"), jitter=600)
    await world.scheduler(app_with(nightly=when), tick="off")
    answer = await client.preview("nightly", 4, after=datetime(2027, 3, 25, 12, tzinfo=UTC))
    assert (answer.zone, answer.note) == (BERLIN, "")
    assert [(fire.local, fire.excluded is not None, fire.dst) for fire in answer.fires] == [
        ("2027-03-26 02:30:00+01:00", False, None),
        ("2027-03-27 02:30:00+01:00", True, None),
        ("2027-03-28 03:00:00+02:00", False, "gap"),
        ("2027-03-29 02:30:00+02:00", False, None),
        ("2027-03-30 02:30:00+02:00", False, None),
    ]
    for fire in answer.fires:
        assert timedelta() <= fire.fire_at - fire.due_at <= timedelta(seconds=600)
    assert len({fire.fire_at - fire.due_at for fire in answer.fires}) > 1


async def test_a_preview_folds_excluded_times_unless_each_is_requested(world, client):
    when = every(minutes=1, exclude=exclude_range("2027-12-24", "2028-01-06"))
    await world.scheduler(app_with(busy=when), tick="off")
    after = datetime(2027, 12, 24, 0, 0, 30, tzinfo=UTC)
    run, *fires = (await client.preview("busy", after=after)).fires
    each = (await client.preview("busy", after=after, each=True)).fires
    assert (run.times, run.until) == (20_159, datetime(2028, 1, 6, 23, 59, tzinfo=UTC))
    assert [fire.excluded for fire in fires] == [None] * 20
    assert [fire.excluded is None for fire in each] == [False] * 20


async def test_a_preview_begins_with_the_next_due_time(world, client):
    await world.scheduler(app_with(hourly=when_made_due()), tick="off")
    due = await world.value("SELECT next_due_at FROM scheduler.manifest")
    fires = (await client.preview("hourly", 3)).fires
    assert [fire.due_at for fire in fires] == [due + timedelta(hours=step) for step in range(3)]
    await world.value("UPDATE scheduler.manifest SET next_due_at = now() - interval '5 h'")
    assert (await client.preview("hourly", 1)).fires == fires[:1], "past times are not in a preview"


async def test_a_preview_says_why_there_are_no_times_or_why_they_may_not_come(world, client):
    app = app_with(
        by_hand=manual(),
        far=spaced(minutes=10),
        hourly=every(hours=1),
        shot=once("2099-01-01 00:00"),
    )
    app.manifest("hourly").then("after", job="job")
    await world.scheduler(app, tick="off")

    async def note(external_id: str) -> str:
        return (await client.preview(external_id)).note

    assert await note("by-hand") == "it has no times: it runs when it is triggered"
    assert "10 minutes after" in await note("far")
    assert "it follows 'hourly', after each success" in await note("after")
    assert await note("shot") == ""
    await world.value("UPDATE scheduler.manifest SET next_due_at = NULL WHERE external_id = 'shot'")
    assert "its time was decided: it will not fire again" in await note("shot")
    await client.disable("hourly")
    assert "it is disabled" in await note("hourly")
    assert (await client.preview("hourly")).fires
    await client.change_group("ops", enabled=False)
    assert "its group is disabled" in await note("hourly")


async def test_a_time_without_an_offset_is_refused(world, client):
    await world.scheduler(app_with(hourly=every(hours=1)), tick="off")
    for request in (
        client.preview("hourly", after=datetime(2027, 1, 1)),
        client.explain("hourly", at=datetime(2027, 1, 1)),
        client.ledger("hourly", since=datetime(2027, 1, 1)),
    ):
        with pytest.raises(RequestFailed, match="timezone component"):
            await request


async def rewind(world, hours: float) -> None:
    """Move all declarations into the past, with all due times since then undecided."""
    await world.value(
        "UPDATE scheduler.timing SET since = since - make_interval(secs => $1 * 3600)", hours
    )
    await world.value(
        "UPDATE scheduler.manifest SET next_due_at = next_due_at - make_interval(hours => $1),"
        " wake_at = next_due_at - make_interval(hours => $1)",
        int(hours),
    )


async def test_the_ledger_is_sound_after_a_late_tick_and_a_hole_in_it_is_found(world, client):
    await world.declare(app_with(hourly=every(hours=1), other=every(hours=1), by_hand=manual()))
    await rewind(world, 10)
    await world.scheduler()
    await world.until("SELECT count(*) >= 4 FROM scheduler.occurrence")
    sound = await client.ledger()
    assert (sound.manifests, sound.gaps) == (3, [])
    assert sound.fire_times >= 4
    await world.value(
        "UPDATE scheduler.occurrence SET first_due_at = first_due_at + interval '2 h'"
        " WHERE starts_with(cause, 'stretch:') AND manifest_id ="
        " (SELECT id FROM scheduler.manifest WHERE external_id = 'hourly')"
    )
    holed = await client.ledger()
    assert [(gap.manifest, gap.trouble) for gap in holed.gaps] == [
        ("hourly", "no decision is in the ledger")
    ]
    [gap] = holed.gaps
    assert gap.last_due_at - gap.first_due_at == timedelta(hours=1)
    assert (await client.ledger("other")).gaps == []
    later = await client.ledger("hourly", since=gap.last_due_at)
    assert later.gaps == []


async def test_a_manifest_with_too_many_times_is_asked_about_again(world, client, monkeypatch):
    monkeypatch.setattr("headway_scheduler.explain.ledger_check.MOST_OF_A_MANIFEST", 7)
    await world.declare(app_with(hourly=every(hours=1), other=every(hours=1)))
    await world.value("UPDATE scheduler.timing SET since = since - interval '25 hours'")
    await world.scheduler(tick="off")
    found = await client.ledger()
    assert found.manifests == 2
    assert found.fire_times in (50, 52), "one more of each if an hour has ended since"
    assert {gap.trouble for gap in found.gaps} == {"no decision is in the ledger"}
    times = sum(
        1 + (gap.last_due_at - gap.first_due_at) // timedelta(hours=1) for gap in found.gaps
    )
    assert times == found.fire_times, "each of them once"


async def test_a_scheduler_that_does_not_tick_leaves_an_overdue_ledger(world, client):
    await world.declare(app_with(hourly=every(hours=1), held=every(hours=1)))
    await world.value(
        "UPDATE scheduler.manifest SET enabled = false, disabled_by = 'operator'"
        " WHERE external_id = 'held'"
    )
    await rewind(world, 3)
    await world.scheduler(tick="off")
    found = await client.ledger()
    assert [(gap.manifest, gap.trouble) for gap in found.gaps] == [
        ("hourly", "still undecided: does a scheduler tick?")
    ]


async def test_a_question_writes_nothing(world, client):
    await world.scheduler(app_with(hourly=every(hours=1)), tick="off")
    before = await world.rows("SELECT * FROM scheduler.manifest")
    await client.manifest("hourly")
    await client.preview("hourly")
    await client.explain("hourly")
    await client.ledger()
    assert await world.rows("SELECT * FROM scheduler.manifest") == before
