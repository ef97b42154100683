"""Time you can own: the real services under a virtual clock."""

import asyncio
import os
import sys
from datetime import timedelta

import msgspec
import pytest
from headway import App, InvalidDefinitions, catch_up, daily, every, retry, skip_missed
from headway.testing import World

pytestmark = pytest.mark.thorough


class Page(msgspec.Struct):
    number: int


async def test_a_quarter_of_a_daily_report(headway_world):
    app = App("test")

    @app.job("report")
    @daily("06:00", tz="Europe/Berlin", name="daily")
    async def report(ctx): ...

    world = await headway_world(app, start="2027-01-01")
    await world.run_until("2027-04-01")
    fired = world.assert_fired("report-daily", times=90, outcome="completed")
    assert fired[0].at.isoformat() == "2027-01-01T05:00:00+00:00"
    assert fired[-1].at.isoformat() == "2027-03-31T04:00:00+00:00", "summer time"


async def test_an_outage_of_the_scheduler_is_a_misfire(headway_world):
    app = App("test")
    app.job("job")(lambda ctx: None)
    for name, misfire in {
        "once": "fire_once",
        "never": skip_missed(),
        "last-two": catch_up(2),
    }.items():
        app.schedule(name, job="job", when=every(hours=1), misfire=misfire)
    world = await headway_world(app, start="2027-01-01 00:30")
    world.down("scheduler", at="2027-01-01 02:15", hours=4)
    await world.run_until("2027-01-01 08:30")
    # Back at 06:15: 03:00 to 06:00 were missed.
    hours = {
        name: [fire.due_at.hour for fire in world.fires(name)]
        for name in ("once", "never", "last-two")
    }
    assert hours == {
        "once": [1, 2, 6, 7, 8],
        "never": [1, 2, 7, 8],
        "last-two": [1, 2, 5, 6, 7, 8],
    }
    assert [(skip.first_due_at.hour, skip.last_due_at.hour) for skip in world.skips("never")] == [
        (3, 6)
    ]


@pytest.mark.parametrize("service", ["dispatcher", "worker"])
async def test_an_outage_of_the_others_leaves_work_under_way(headway_world, service):
    app = App("test")
    app.job("job")(lambda ctx: None)
    app.schedule("hourly", job="job", when=every(hours=1))
    world = await headway_world(app, start="2027-01-01 00:30")
    world.down(service, at="2027-01-01 01:30", hours=3)
    await world.run_until("2027-01-01 06:30")
    assert [fire.due_at.hour for fire in world.fires("hourly")] == [1, 2, 5, 6]
    assert {fire.outcome for fire in world.fires()} == {"completed"}
    [skip] = world.skips("hourly")
    assert (skip.first_due_at.hour, skip.last_due_at.hour) == (3, 4)
    assert skip.reason == "still_outstanding"


async def test_retries_wait_in_virtual_time_and_a_dead_letter_blocks(headway_world):
    app = App("test")
    attempts = []

    @app.job("flaky")
    @retry(attempts=3, interval=3600, backoff=1, jitter=0)
    async def flaky(ctx):
        attempts.append(world.now)
        if ctx.due_at.day == 2 or ctx.attempt < 3:
            raise ConnectionError("not today")

    app.schedule("flaky", job=flaky, when=daily("06:00"))
    world = await headway_world(app, start="2027-01-01")
    await world.run_until("2027-01-05")
    assert [(at.day, at.hour) for at in attempts] == [
        (1, 6),
        (1, 7),
        (1, 8),
        (2, 6),
        (2, 7),
        (2, 8),
    ]
    assert [fire.outcome for fire in world.fires("flaky")] == ["completed", "dead_lettered"]


async def test_dependents_follow_and_dormant_ones_are_woken(headway_world):
    app = App("test")
    pages = []

    @app.job("crawl")
    async def crawl(ctx):
        await asyncio.gather(*(ctx.activate("page", Page(number)) for number in range(3)))

    @app.job("page")
    def page(ctx, page: Page):
        pages.append(page.number)

    @app.job("mail")
    async def mail(ctx): ...

    chain = app.schedule("crawl", job=crawl, when=daily("06:00"))
    chain.include("page", job=page, input=Page(0), dormant=True)
    chain.include("mail", job=mail)
    world = await headway_world(app, start="2027-01-01")
    await world.run_until("2027-01-03")
    world.assert_fired("mail", times=2, outcome="completed")
    world.assert_fired("page", times=6, outcome="completed")
    assert sorted(pages) == [0, 0, 1, 1, 2, 2]


async def test_a_client_of_the_world_and_two_worlds_at_once(headway_world):
    app = App("test")
    app.job("job")(lambda ctx: None)
    app.schedule("daily", job="job", when=daily("06:00"))
    one = await headway_world(app, start="2027-01-01")
    other = await headway_world(app, start="2028-01-01")
    async with one.client() as headway:
        await headway.disable("daily")
    for world in (one, other):
        await world.run_for(days=2)
    one.assert_not_fired("daily")
    other.assert_fired("daily", times=2)


async def test_what_a_test_is_told_when_it_is_wrong(headway_world):
    app = App("test")
    app.job("job")(lambda ctx: None)
    app.schedule("daily", job="job", when=daily("06:00"))
    with pytest.raises(TypeError, match="no setting max_activ"):
        await headway_world(app, start="2027-01-01", max_activ=5)
    with pytest.raises(TypeError, match="no setting nats_url"):
        await headway_world(app, start="2027-01-01", nats_url="nats://127.0.0.1:4222")
    with pytest.raises(ValueError, match=r"prune 'delte' is not valid: .*; slots 0 is not valid: "):
        await headway_world(app, start="2027-01-01", prune="delte", slots=0)
    world = await headway_world(app, start="2027-01-01")
    await world.run_for(days=1)
    with pytest.raises(AssertionError, match="daily: expected 7 fires, found 1; outcomes: "):
        world.assert_fired("daily", times=7)
    for wrong in (world.assert_fired, world.assert_not_fired):
        with pytest.raises(AssertionError, match="never was a manifest 'dayly'; did you mean 'dai"):
            wrong("dayly")
    with pytest.raises(ValueError, match="is in the past"):
        await world.run_until("2027-01-01")
    with pytest.raises(ValueError, match="is in the past"):
        world.down("scheduler", at="2026-01-01", hours=1)
    with pytest.raises(ValueError, match="name one of scheduler, dispatcher, worker"):
        world.down("postgres", hours=1)
    for duration in ({}, {"hours": -1}):
        with pytest.raises(ValueError, match="say how long"):
            world.down("scheduler", **duration)


async def test_a_world_is_used_between_its_beginning_and_its_end(tmp_path):
    app = App("test")
    app.job("job")(lambda ctx: None)
    app.schedule("daily", job="job", when=daily("06:00"))
    for wrong in ("soon", 5):
        with pytest.raises(ValueError, match=r"invalid time .*: write it like '2027-04-01 12:00'"):
            World(app, start=wrong, folder=tmp_path)
    world = World(app, start="2027-01-01", folder=tmp_path)
    with pytest.raises(RuntimeError, match=r"has not begun: use it as 'async with World"):
        world.client()
    with pytest.raises(RuntimeError, match="has not begun"):
        await world.run_for(days=1)
    async with world:
        await world.run_for(days=1)
        with pytest.raises(RuntimeError, match="can be used once: make another"):
            async with world:
                pass
    with pytest.raises(RuntimeError, match="has ended: only its recorded fires"):
        await world.run_for(days=1)
    world.assert_fired("daily", times=1)


async def test_what_is_wrong_with_an_app_is_told_before_anything_is_started(tmp_path):
    app = App("test")
    app.schedule("daily", job="nobody", when=daily("06:00"))
    with pytest.raises(InvalidDefinitions, match="names the job 'nobody'"):
        async with World(app, start="2027-01-01", folder=tmp_path / "world"):
            pass
    assert not (tmp_path / "world").exists()


async def test_a_scheduler_that_does_not_tick_lets_time_pass(headway_world):
    app = App("test")
    app.job("job")(lambda ctx: None)
    app.schedule("daily", job="job", when=daily("06:00"))
    world = await headway_world(app, start="2027-01-01", tick="off")
    with pytest.raises(AssertionError, match="daily is not known yet"):
        world.assert_not_fired("daily")
    await world.run_for(days=2)
    world.assert_not_fired("daily")


async def test_a_manifest_that_was_deleted_is_still_known(headway_world):
    app = App("test")
    app.job("job")(lambda ctx: None)
    world = await headway_world(app, start="2027-01-01")
    async with world.client() as headway:
        await headway.schedule("short", job="job", when=daily("06:00"))
        await headway.delete("short")
    await world.run_for(days=1)
    world.assert_not_fired("short")


def test_the_world_is_where_users_look_for_it():
    assert World.__module__ == "headway_testing.world"


_ALONE = """
import asyncio, sys
from pathlib import Path
from headway import App
from headway.testing import World

async def main():
    async with World(App("alone"), start="2027-01-01", folder=Path(sys.argv[1])) as world:
        await world.run_for(days=1)

asyncio.run(main())
"""


async def test_a_world_without_pytest_leaves_no_cluster_behind(tmp_path):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _ALONE, str(tmp_path / "world")),
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    assert await process.wait() == 0
    assert list(temporary.iterdir()) == []


async def test_a_maintenance_window_ends_by_itself_and_makes_good_by_policy(headway_world):
    app = App("test")
    app.job("job")(lambda ctx: None)
    for name, misfire in {"once": "fire_once", "never": skip_missed()}.items():
        app.schedule(name, job="job", when=every(hours=1), misfire=misfire)
    world = await headway_world(app, start="2027-01-01 00:30")
    async with world.client() as client:
        until = world.now + timedelta(hours=4)
        await client.pause(everything=True, until=until, reason="new disks")
    await world.run_until("2027-01-01 06:30")
    # Back at 04:30: 01:00 to 04:00 had come due.
    assert [fire.due_at.hour for fire in world.fires("once")] == [4, 5, 6]
    assert world.fires("once")[0].at == until
    assert [fire.due_at.hour for fire in world.fires("never")] == [5, 6]
    [skip] = world.skips("never")
    assert (skip.first_due_at.hour, skip.last_due_at.hour) == (1, 4)
    assert skip.reason == "paused: new disks"
