"""Plans show the effect of definitions without applying them."""

import asyncio
from datetime import datetime, timedelta

import pytest
from headway import App, cron, daily, every, exclude_dates, exclude_days, manual, weekly
from headway.client.client import RequestFailed
from headway.define.definitions import Definitions
from headway.define.packing import pack
from headway_clock import monotonic
from headway_contract.definitions import ApplyAnswer, ApplyRequest
from headway_contract.manifests import LedgerQuestion, PauseRequest, ResumeRequest
from headway_decisions.timing import timing
from headway_scheduler.declare import plan
from headway_scheduler.declare.fire_changes import MOST_COMPARED
from headway_scheduler.declare.startup import apply
from headway_scheduler.explain import ledger_check
from headway_scheduler.operate import foresee, pause
from headway_scheduler.operate.desk import Desk
from headway_scheduler.settings import SchedulerSettings
from headway_service_kit.passes import Wakeup
from msgspec import structs

pytestmark = pytest.mark.thorough


def app_with(generation: int = 0, **cadences) -> App:
    app = App("billing", generation=generation)
    app.job("job", group="ops")(lambda ctx: None)
    for external_id, when in cadences.items():
        app.schedule(external_id, job="job", when=when)
    return app


async def everything(world) -> list:
    tables = await world.rows(
        "SELECT table_name AS name FROM information_schema.tables WHERE table_schema = 'scheduler'"
        " AND table_name NOT IN ('outbox', 'leader') ORDER BY 1"
    )
    return [await world.rows(f"SELECT * FROM scheduler.{table['name']}") for table in tables]


async def test_a_plan_shows_the_result_of_apply_and_changes_nothing(world, client):
    await world.scheduler_of_files(
        app_with(stays=daily("01:00"), moves=daily("02:00"), goes=daily("03:00")), tick="off"
    )
    wanted = app_with(stays=daily("01:00"), moves=daily("04:00"), comes=daily("05:00"))
    before = await everything(world)
    planned = await client.plan(wanted.definitions(), days=3)
    assert await everything(world) == before
    applied = await client.apply(wanted.definitions())
    assert (planned.owner, planned.created, planned.moved) == ("billing", ["comes"], ["moves"])
    assert planned.changed == []
    assert (planned.unchanged, planned.pruned) == (1, ["goes"])
    assert structs.replace(planned, fires=[]) == applied
    changes = {change.manifest: change for change in planned.fires}
    assert set(changes) == {"comes", "goes", "moves"}
    assert [len(changes[name].appear) for name in ("comes", "goes", "moves")] == [3, 0, 3]
    assert [len(changes[name].vanish) for name in ("comes", "goes", "moves")] == [0, 3, 3]
    assert {fire.local[11:16] for fire in changes["moves"].appear} == {"04:00"}
    assert {fire.local[11:16] for fire in changes["moves"].vanish} == {"02:00"}


@pytest.mark.parametrize(
    ("policy", "pruned", "disabled", "vanish"),
    [("delete", ["goes"], [], 1), ("disable", [], ["goes"], 1), ("keep", [], [], 0)],
)
async def test_what_is_no_longer_declared(world, client, policy, pruned, disabled, vanish):
    await world.scheduler_of_files(app_with(goes=daily("03:00")), tick="off")
    planned = await client.plan(app_with().definitions(), prune=policy, days=1)
    applied = await client.apply(app_with().definitions(), prune=policy)
    assert (planned.pruned, planned.disabled) == (pruned, disabled)
    assert (applied.pruned, applied.disabled) == (pruned, disabled)
    assert sum(len(change.vanish) for change in planned.fires) == vanish


async def test_an_undeclared_manifest_is_reported_once_and_may_return(world, client):
    await world.scheduler_of_files(app_with(goes=daily("03:00")), tick="off", prune="disable")
    await client.apply(app_with().definitions())
    again = await client.plan(app_with().definitions())
    assert (again.disabled, again.fires) == ([], [])
    assert (await client.apply(app_with().definitions())).disabled == []
    text = (await client.explain("goes")).text
    assert "its application no longer declares it (by " in text
    back = await client.plan(app_with(goes=daily("03:00")).definitions(), days=2)
    assert back.changed == ["goes"]
    assert [len(change.appear) for change in back.fires] == [2]


async def test_only_what_changes_when_it_fires_is_listed(world, client):
    await world.scheduler_of_files(
        app_with(busy=daily("01:00"), off=daily("02:00"), late=daily("03:00"), x=daily("04:00")),
        tick="off",
    )
    wanted = App("billing")
    wanted.job("job", group="ops")(lambda ctx: None)
    wanted.schedule("busy", job="job", when=daily("01:00"), priority=9)
    wanted.schedule("off", job="job", when=daily("02:00"), enabled=False)
    wanted.schedule("late", job="job", when=daily("03:00"), jitter=80_000)
    every_day = exclude_days("mon", "tue", "wed", "thu", "fri", "sat")
    wanted.schedule("x", job="job", when=daily("04:00", exclude=every_day))
    planned = await client.plan(wanted.definitions(), days=7)
    assert (planned.changed, planned.moved) == (["busy", "late", "off"], ["x"])
    changes = {change.manifest: change for change in planned.fires}
    assert set(changes) == {"late", "off", "x"}
    assert (len(changes["off"].vanish), changes["off"].appear) == (7, [])
    assert {fire.fire_at - fire.due_at for fire in changes["late"].vanish} == {timedelta()}
    assert len(changes["late"].appear) == len(changes["late"].vanish) > 0
    assert (len(changes["x"].vanish), changes["x"].unchanged) == (6, 1)
    assert all(fire.excluded for fire in changes["x"].vanish)


async def test_what_an_operator_has_touched_stays(world, client):
    await world.scheduler_of_files(app_with(a=daily("01:00")), tick="off")
    await client.disable("a")
    planned = await client.plan(app_with(a=daily("05:00")).definitions(), days=7)
    assert (planned.moved, planned.fires) == (["a"], [])


async def test_days_of_clock_changes_are_marked(world, client):
    await world.scheduler_of_files(app_with(), tick="off")
    # The clock changes on Sundays; in summer it does not change for more than 100 days.
    when = {"at": "02:30", "tz": "Europe/Berlin"}
    definitions = app_with(a=daily(**when), sundays=weekly("sun", **when)).definitions()
    planned = await client.plan(definitions, days=370)
    changes = {change.manifest: change for change in planned.fires}
    assert (len(changes["a"].appear), changes["a"].appearing > 360) == (100, True)
    assert len(changes["sundays"].appear) == changes["sundays"].appearing
    assert {fire.dst for fire in changes["sundays"].appear if fire.dst} == {"gap", "repeated"}


async def test_dense_cadences_and_many_manifests_stay_cheap_and_fit_into_a_message(world, client):
    await world.scheduler_of_files(app_with(old=daily("01:00")), tick="off")
    app = app_with(dense=every(seconds=1), old=daily("02:00"))
    app.schedule_many(
        "many",
        job="job",
        items=[(number, None) for number in range(3000)],
        when=cron("*/5 * * * *"),
    )
    began = monotonic()
    planned = await client.plan(app.definitions(), days=3660)
    assert monotonic() - began < 15
    assert len(planned.created) == 3001
    changes = {change.manifest: change for change in planned.fires}
    assert changes["old"].vanishing in (3659, 3660), "existing manifests come first"
    assert changes["dense"].appearing == MOST_COMPARED
    assert changes["dense"].compared_until is not None
    assert planned.left_out is not None
    assert (len(planned.fires), planned.left_out.changing) == (1000, 2002)
    assert (planned.left_out.appearing, planned.left_out.not_compared) == (2002 * MOST_COMPARED, 0)


async def test_a_day_that_is_excluded_among_thousands_of_times_is_seen(world, client):
    await world.scheduler_of_files(app_with(busy=every(minutes=1)), tick="off")
    now: datetime = await world.value("SELECT clock_timestamp()")
    day = exclude_dates(f"{now + timedelta(days=3):%Y-%m-%d}")
    planned = await client.plan(app_with(busy=every(minutes=1, exclude=day)).definitions())
    [change] = planned.fires
    assert (change.vanishing, change.appearing) == (1440, 0)
    assert change.unchanged in (6 * 1440, 6 * 1440 + 1), "one time is late if a minute has ended"
    assert (len(change.vanish), change.compared_until, planned.left_out) == (100, None, None)


async def test_settings_of_groups_are_shown(world, client):
    await world.scheduler_of_files(app_with(a=manual()), tick="off")
    wanted = app_with(a=manual())
    wanted.group("ops", max_active=3, enabled=False)
    planned = await client.plan(wanted.definitions())
    assert planned.warnings == [
        "group 'ops', which has 1 manifest, changes: max_active from None to 3",
        "group 'ops', which has 1 manifest, changes: enabled from True to False",
    ]


async def test_limits_of_jobs_are_shown_except_those_that_operators_set(world, client, nats_url):
    def limited(**limits) -> Definitions:
        app = App("billing")
        app.job("job", **limits)(lambda ctx: None)
        return app.definitions()

    await world.scheduler_of_files(app_with(), tick="off")
    await client.apply(limited(max_active=3, rate="5/minute"))
    assert (await client.plan(limited(max_active=3, rate="5/minute"))).warnings == []
    wanted = limited(max_active=2, batch=10)
    assert (await client.plan(wanted)).warnings == [
        "job 'job' changes: max_active from 3 to 2",
        "job 'job' changes: rate from 5/minute to None",
        "job 'job' changes: batch from None to 10",
    ]
    await client.change_job("job", max_active=7)
    await client.apply(wanted)
    assert (await client.plan(limited(max_active=1, batch=10))).warnings == []


async def test_an_older_generation_would_change_nothing(world, client):
    await world.scheduler_of_files(app_with(generation=7, a=manual()), tick="off")
    planned = await client.plan(app_with(generation=6, b=manual()).definitions())
    assert (planned.stale, planned.created) == (True, [])
    assert "generation 7" in planned.warnings[0]


async def test_problems_are_refused_all_together(world, client):
    await world.scheduler_of_files(app_with(a=manual()), tick="off")
    [good] = app_with(b=manual()).definitions().manifests
    bad = Definitions(
        owner="crm",
        manifests=(
            structs.replace(good, external_id="two words", job="nobody"),
            structs.replace(good, external_id="a"),
        ),
    )
    with pytest.raises(RequestFailed) as caught:
        await client.plan(bad)
    for words in ("'two words' is not valid", "'nobody', which is not declared", "belongs to"):
        assert words in str(caught.value)


async def test_a_timing_that_never_fires_from_now_on_is_refused(world, client):
    await world.scheduler_of_files(app_with(), tick="off")
    never = app_with(a=cron("0 0 29 2 *", days="thu")).definitions()
    for ask in (client.plan, client.apply):
        with pytest.raises(RequestFailed, match=r"manifest 'a': cron 0 0 29 2 \* never fires"):
            await ask(never)


@pytest.mark.parametrize("body", [b"", b"nonsense", b"x\x9c"])
async def test_malformed_definitions_are_refused(world, client, body):
    await world.scheduler_of_files(app_with(), tick="off")
    with pytest.raises(RequestFailed, match="not definitions"):
        await client._console.ask("POST", "/plan", ApplyRequest(definitions=body), ApplyAnswer)


@pytest.mark.parametrize(
    ("module", "name"),
    [(plan, "changes"), (ledger_check, "check"), (timing, "problems"), (foresee, "_foresee_fires")],
)
async def test_no_transaction_is_open_while_fire_times_are_computed(
    world, monkeypatch, module, name
):
    await world.declare(app_with(a=daily("01:00")))
    changed = app_with(a=daily("02:00")).definitions()
    compute, loop, idle = getattr(module, name), asyncio.get_running_loop(), []

    def watched(*args, **options):
        count = world.value(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND state = 'idle in transaction'"
        )
        idle.append(asyncio.run_coroutine_threadsafe(count, loop).result(timeout=10))
        return compute(*args, **options)

    monkeypatch.setattr(module, name, watched)
    if module is plan:
        request = ApplyRequest(definitions=pack(changed))
        await plan.plan(world.database, request, policy="delete")
    elif module is ledger_check:
        await ledger_check.check_page(world.database, LedgerQuestion(), kept=timedelta(days=1))
    elif module is timing:
        await apply(world.database, changed, policy="keep")
    else:
        settings = SchedulerSettings(database_url=world.database_url, nats_url=world.nats_url)
        desk = Desk(world.database, world.broker, settings, "desk", wakeups=[], windows=Wakeup())
        async with world.database.transaction() as connection:
            now = await world.database.clock.now(connection)
            await pause.pause(connection, PauseRequest(manifests=["a"]), now=now)
        assert (await desk.resume(ResumeRequest(manifests=["a"]))).count == 1
    assert idle == [0], "the server ends a transaction that stays idle"


async def test_a_one_shot_that_is_just_late_still_appears(world, client):
    await world.scheduler_of_files(app_with(), tick="off")
    now: datetime = await world.value("SELECT clock_timestamp()")
    app = app_with()
    from headway import once

    app.schedule("shot", job="job", when=once(f"{now - timedelta(seconds=20):%Y-%m-%d %H:%M:%S}"))
    [change] = (await client.plan(app.definitions())).fires
    assert len(change.appear) == 1
