"""When a world lets time pass: not before all that is in flight has arrived, and never too early."""

import asyncio

import pytest
from headway import App, daily, every, retry
from headway_scheduler.outcomes import settle
from headway_testing import world as worlds
from headway_testing.watch import Watch

pytestmark = pytest.mark.thorough


class Hold:
    """Keeps something from going on until the world has looked a few times if all is quiet."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._looked = asyncio.Event()
        look = Watch.look
        looks = 0

        async def counted(*arguments, **named):
            nonlocal looks
            looks += 1
            if looks % 5 == 0:
                self._looked.set()
            return await look(*arguments, **named)

        monkeypatch.setattr(Watch, "look", counted)

    async def wait(self) -> None:
        self._looked.clear()
        await self._looked.wait()


@pytest.fixture
def held_letters(monkeypatch):
    """Actions on dead letters reach the scheduler late."""
    hold, resolve = Hold(monkeypatch), settle.resolve

    async def late(*arguments, **named):
        await hold.wait()
        return await resolve(*arguments, **named)

    monkeypatch.setattr(settle, "resolve", late)


@pytest.mark.usefixtures("held_letters")
async def test_an_acknowledged_letter_is_heard_of_before_time_passes(headway_world):
    app = App("test")

    @app.job("flaky")
    @retry(attempts=1)
    async def flaky(ctx):
        raise ConnectionError("not today")

    app.schedule("flaky", job=flaky, when=daily("06:00"))
    world = await headway_world(app, start="2027-01-01")
    await world.run_for(days=1)
    async with world.client() as headway:
        [letter] = await headway.dead_letters()
        await headway.acknowledge(letter.dead_letter)
    await world.run_for(days=1)
    world.assert_fired("flaky", times=2)
    assert world.skips("flaky") == []


@pytest.mark.usefixtures("held_letters")
async def test_a_retried_letter_has_its_new_outcome(headway_world):
    app = App("test")
    attempts = []

    @app.job("flaky")
    @retry(attempts=1)
    async def flaky(ctx):
        attempts.append(world.now)
        if len(attempts) == 1:
            raise ConnectionError("not today")

    app.schedule("flaky", job=flaky, when=daily("06:00"))
    app.manifest("flaky").then("after", job=app.job("after")(lambda ctx: None))
    world = await headway_world(app, start="2027-01-01")
    await world.run_until("2027-01-01 12:00")
    async with world.client() as headway:
        [letter] = await headway.dead_letters()
        await headway.retry(letter.dead_letter)
    await world.run_until("2027-01-01 13:00")
    assert [at.hour for at in attempts] == [6, 12]
    world.assert_fired("flaky", times=1, outcome="completed")
    world.assert_fired("after", times=1, outcome="completed")


async def test_an_outage_begins_before_what_is_due_at_its_first_moment(headway_world):
    app = App("test")
    app.job("job")(lambda ctx: None)
    app.schedule("hourly", job="job", when=every(hours=1))
    world = await headway_world(app, start="2027-01-01 00:30")
    world.down("scheduler", at="2027-01-01 02:00", hours=2)
    await world.run_until("2027-01-01 05:30")
    # Back at 04:00, which is its own time and no longer the outage's.
    assert [(fire.due_at.hour, fire.at.hour) for fire in world.fires("hourly")] == [
        (1, 1),
        (4, 4),
        (5, 5),
    ]
    [skip] = world.skips("hourly")
    assert (skip.first_due_at.hour, skip.last_due_at.hour, skip.reason) == (2, 3, "missed")


async def test_a_worker_that_goes_down_takes_nothing_of_that_moment(headway_world):
    app = App("test")
    began = []
    app.job("job")(lambda ctx: began.append(world.now.hour))
    app.schedule("daily", job="job", when=daily("02:00"))
    world = await headway_world(app, start="2027-01-01")
    world.down("worker", at="2027-01-01 02:00", hours=2)
    await world.run_until("2027-01-01 05:30")
    assert began == [4]


async def test_delays_of_a_client_are_counted_from_the_clock_of_the_world(headway_world):
    app = App("test")
    began = []
    app.job("job")(lambda ctx: began.append(world.now.isoformat()))
    world = await headway_world(app, start="2027-01-01")
    async with world.client() as headway:
        await headway.once("job", delay=7200)
        await headway.enqueue("job", delay=3600)
    await world.run_for(days=1)
    assert began == ["2027-01-01T01:00:00+00:00", "2027-01-01T02:00:00+00:00"]


async def test_a_body_that_hangs_is_named(headway_world, monkeypatch):
    monkeypatch.setattr(worlds, "_PATIENCE_SECONDS", 0.5)
    app = App("test")

    @app.job("stuck")
    async def stuck(ctx):
        await asyncio.Event().wait()

    app.schedule("nightly", job=stuck, when=daily("06:00"))
    world = await headway_world(app, start="2027-01-01")
    named = r"06:00:00\+00:00: a run is under way \(job 'stuck' of manifest 'nightly' runs\)"
    with pytest.raises(AssertionError, match=named):
        await world.run_for(days=1)


async def test_work_that_nobody_takes_is_named_with_its_reason(headway_world, monkeypatch):
    monkeypatch.setattr(worlds, "_PATIENCE_SECONDS", 2.0)
    elsewhere = App("elsewhere")
    elsewhere.job("remote")(lambda ctx: None)
    elsewhere.schedule("nightly", job="remote", when=daily("06:00"))
    world = await headway_world(App("test"), start="2027-01-01")
    async with world.client() as headway:
        await headway.apply(elsewhere.definitions())
    with pytest.raises(AssertionError, match="job 'remote' of manifest 'nightly' waits: no_worker"):
        await world.run_for(days=1)
