"""Limits, from their declaration to the dispatcher that enforces them."""

import asyncio
from datetime import timedelta

import pytest
from headway import App, RequestFailed, every, manual
from headway_contract.fields import Rate
from support.cadences import when_made_due
from support.invariants import check_invariants


class Bodies:
    """Job bodies that wait until they are released, and count how many ran at once."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.now: list[object] = []
        self.most = 0
        self.clashes: list[object] = []

    async def run(self, ctx, given):
        if given in self.now:
            self.clashes.append(given)
        self.now.append(given)
        self.most = max(self.most, len(self.now))
        await self.go.wait()
        self.now.remove(given)


async def test_a_job_and_its_keys_are_limited_over_all_groups(world):
    app, bodies = App("test"), Bodies()
    bodies.go.set()

    @app.job("sync", max_active=3, concurrency_key="customer:{input.id}")
    async def sync(ctx, customer: dict):
        await bodies.run(ctx, customer["id"])

    for number in range(12):
        app.schedule(
            f"sync-{number}",
            job=sync,
            when=when_made_due(),
            input={"id": number % 3},
            group=f"group-{number % 2}",
        )
    await world.run(app)
    await world.until_settled(at_least=12)
    assert 1 <= bodies.most <= 3
    assert bodies.clashes == []
    assert await world.value(
        "SELECT array_agg(DISTINCT concurrency_key ORDER BY concurrency_key)"
        " FROM dispatcher.work_queue"
    ) == ["customer:0", "customer:1", "customer:2"]
    assert await world.value("SELECT max_active FROM dispatcher.job_limit") == 3
    await check_invariants(world.database)


async def test_a_disabled_manifest_holds_its_waiting_work_until_it_is_enabled(world, client):
    app, bodies = App("test"), Bodies()

    @app.job("slow", max_active=1)
    async def slow(ctx, number: int):
        await bodies.run(ctx, number)

    for number in range(2):
        app.schedule(f"slow-{number}", job=slow, when=when_made_due(), input=number)
    await world.run(app)
    await world.until("SELECT count(*) = 1 FROM dispatcher.waiting")
    waiting = await world.value("SELECT manifest FROM dispatcher.waiting")
    await client.disable(waiting)
    await world.until("SELECT reason = 'manifest_disabled' FROM dispatcher.waiting")
    bodies.go.set()
    await world.until("SELECT count(*) = 1 FROM dispatcher.run WHERE state = 'completed'")
    assert await world.value("SELECT reason FROM dispatcher.waiting") == "manifest_disabled"
    await client.enable(waiting)
    await world.until_settled(at_least=2)
    await check_invariants(world.database)


async def test_code_that_disables_a_manifest_tells_the_dispatcher(world):
    def app_with(*, enabled: bool) -> App:
        app = App("test")
        app.job("job")(lambda ctx: None)
        app.schedule("m", job="job", when=when_made_due(), enabled=enabled)
        return app

    await world.dispatcher()
    await world.scheduler()
    await world.declare(app_with(enabled=True))
    await world.declare(app_with(enabled=False))
    await world.until("SELECT count(*) = 1 FROM dispatcher.manifest_switch WHERE NOT enabled")
    await world.declare(app_with(enabled=False))
    await world.declare(app_with(enabled=True))
    await world.until("SELECT count(*) = 1 FROM dispatcher.manifest_switch WHERE enabled")
    assert await world.value("SELECT version FROM dispatcher.manifest_switch") == 2


async def test_expired_work_is_reported_and_its_manifest_continues(world):
    app = App("test")

    @app.job("lonely", start_within=0.2)
    @every(seconds=1)
    async def lonely(ctx): ...

    await world.dispatcher()
    await world.scheduler(app)
    await world.until("SELECT count(*) >= 2 FROM scheduler.occurrence WHERE outcome = 'expired'")
    assert await world.value("SELECT last_outcome FROM scheduler.manifest") == "expired"
    assert await world.value(
        "SELECT bool_and(outcome = 'expired') FROM dispatcher.work_queue WHERE state = 'settled'"
    )
    await check_invariants(world.database)


async def test_a_trigger_may_limit_its_start_delay(world, client):
    app = App("test")
    app.job("lonely")(lambda ctx: None)
    app.schedule("m", job="lonely", when=manual())
    await world.dispatcher()
    await world.scheduler(app)
    await client.trigger("m", start_within=0.1, key="k")
    await world.until("SELECT count(*) = 1 FROM scheduler.occurrence WHERE outcome = 'expired'")
    assert (
        await client.trigger("m", start_within=timedelta(seconds=0.1), key="k")
    ).result == "known"
    with pytest.raises(RequestFailed, match=r"start_within was 0\.1, now"):
        await client.trigger("m", key="k")
    assert (await client.trigger("m")).result == "queued"
    await world.until("SELECT count(*) = 1 FROM dispatcher.waiting")
    assert await world.value(
        "SELECT count(*) FROM dispatcher.work_queue WHERE state = 'queued' AND start_by IS NULL"
    )


@pytest.mark.thorough
async def test_the_operators_rate_of_a_group_overrides_the_code(world, client):
    app = App("test")
    app.group("g", rate="100/minute")
    app.job("job", group="g")(lambda ctx: None)
    app.schedule("m", job="job", when=manual())
    await world.dispatcher()
    await world.scheduler(app)
    await world.until("SELECT rate ->> 'count' = '100' FROM dispatcher.group_limit")
    changed = await client.change_group("g", rate="5/second")
    assert changed.text == "group g: at most 5/second"
    await world.until("SELECT rate ->> 'count' = '5' FROM dispatcher.group_limit")
    await world.declare(app)
    assert (await client.groups())[0].rate == Rate(count=5, period_seconds=1)
    await client.change_group("g", rate=None)
    await world.until("SELECT rate IS NULL FROM dispatcher.group_limit")
    await client.change_group("g", give_back=["rate"])
    await world.declare(app)
    await world.until("SELECT rate ->> 'count' = '100' FROM dispatcher.group_limit")


async def test_the_operators_limits_of_a_job_override_the_code_until_reset(world, client):
    app, bodies = App("test"), Bodies()

    @app.job("job", max_active=5)
    async def job(ctx, number: int):
        await bodies.run(ctx, number)

    for number in range(4):
        app.schedule(f"m{number}", job=job, when=when_made_due(), input=number)
    await world.dispatcher()
    await world.scheduler(app)
    await world.until("SELECT max_active = 5 FROM dispatcher.job_limit")
    assert (await client.change_job("job", max_active=2)).text == "job job: at most 2 at once"
    await world.until("SELECT max_active = 2 FROM dispatcher.job_limit")
    await world.declare(app)
    await world.worker(app)
    await world.make_due()
    await world.scheduler(app)
    await world.until("SELECT count(*) = 2 FROM dispatcher.run WHERE state = 'in_progress'")
    bodies.go.set()
    await world.until_settled(at_least=4)
    assert bodies.most == 2
    await client.change_job("job", give_back=["max_active"])
    await world.until("SELECT max_active = 5 FROM dispatcher.job_limit")
    with pytest.raises(RequestFailed, match="no job 'nobody': declared are job"):
        await client.change_job("nobody", rate="1/second")


async def test_an_input_that_makes_no_key_is_refused(world, client):
    app = App("test")

    @app.job("sync", concurrency_key="customer:{input.id}")
    def sync(ctx, customer: dict): ...

    app.schedule("m", job=sync, when=manual(), input={"id": 1})
    await world.dispatcher()
    await world.scheduler(app)
    with pytest.raises(RequestFailed, match=r"\{input.id\} is missing"):
        await client.trigger("m", input={"name": "x"})
    assert (await client.trigger("m", input={"id": "x"})).result == "queued"
    await world.until("SELECT concurrency_key = 'customer:x' FROM dispatcher.work_queue")


async def test_a_fire_whose_input_makes_no_key_is_skipped_with_that_reason(world):
    app = App("test")

    @app.job("sync", concurrency_key="customer:{input.id}")
    def sync(ctx, customer: dict): ...

    app.schedule("m", job=sync, when=when_made_due(), input={"id": 1})
    await world.dispatcher()
    await world.declare(app)
    await world.value("UPDATE scheduler.manifest SET input = '{}'")
    await world.make_due()
    await world.scheduler(app)
    reason = await world.until("SELECT reason FROM scheduler.occurrence WHERE decision = 'skipped'")
    assert reason.startswith("invalid_key: concurrency_key: {input.id} is missing")


@pytest.mark.thorough
async def test_limits_of_a_job_that_are_dropped_from_the_code_are_lifted(world):
    def app_with(**limits) -> App:
        app = App("test")
        app.job("job", **limits)(lambda ctx: None)
        return app

    await world.dispatcher()
    await world.scheduler()
    await world.declare(app_with(max_active=2, rate="7/hour", counts_globally=False, batch=20))
    await world.until(
        "SELECT (max_active, counts_globally, batch) = (2, false, 20)"
        ' AND rate = \'{"count": 7, "period_seconds": 3600}\' FROM dispatcher.job_limit'
    )
    await world.declare(app_with())
    await world.until(
        "SELECT max_active IS NULL AND rate IS NULL AND counts_globally AND batch IS NULL"
        " FROM dispatcher.job_limit"
    )
