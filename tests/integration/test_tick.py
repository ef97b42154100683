"""The tick on a real database."""

import asyncio

import pytest
from headway import App
from headway_relay import Handover
from headway_scheduler.fire import fair_cycles
from headway_scheduler.fire import tick as tick_module
from headway_scheduler.fire.tick import Tick
from headway_scheduler.store import TICK_LOCK, leaders, manifests
from support.cadences import when_made_due

pytestmark = pytest.mark.thorough


def tick_of(world, *, holder: str = "me", max_entries: int | None = 200) -> Tick:
    return Tick(
        world.database,
        holder=holder,
        max_entries=max_entries,
        relay=Handover(),
    )


async def declare_due(world, *names: str, group: str = "job") -> None:
    app = App("test")
    app.job("job")(lambda ctx: None)
    for name in names:
        app.schedule(name, job="job", when=when_made_due(), group=group)
    await world.declare(app, prune="keep")
    await world.make_due(*names)


async def test_a_manifest_that_cannot_be_judged_does_not_delay_others(world):
    await declare_due(world, "good", "bad-retry", "bad-zone", "bad-cadence")
    change = "UPDATE scheduler.manifest SET {} WHERE external_id = $1"
    await world.value(change.format('terms = \'{"retry": {"attempts": null}}\''), "bad-retry")
    bad_zone = '{"cadence": {"type": "every", "seconds": 60}, "zone": "Mars/Base"}'
    await world.value(change.format(f"timing = '{bad_zone}'"), "bad-zone")
    lunar = '{"cadence": {"type": "lunar"}}'
    await world.value(change.format(f"timing = '{lunar}'"), "bad-cadence")
    assert (await tick_of(world).run_once()).fired == 1
    rows = await world.rows("SELECT external_id, trouble FROM scheduler.manifest")
    troubles = {row["external_id"]: row["trouble"] for row in rows}
    assert troubles["good"] is None
    assert "Mars/Base" in troubles["bad-zone"]
    assert "attempts" in troubles["bad-retry"]
    assert troubles["bad-cadence"]
    assert (await tick_of(world).run_once()).rest > 200, "postponed for a few minutes"


async def test_an_entry_that_cannot_be_recorded_does_not_delay_others(world):
    await declare_due(world, "good", "bad", "fine")
    await world.value(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF EXISTS (SELECT FROM scheduler.manifest WHERE id = NEW.manifest_id"
        "            AND external_id = 'bad') THEN"
        " RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = 'no such thing'; END IF;"
        " RETURN NEW; END $$"
    )
    await world.value(
        "CREATE TRIGGER refuse BEFORE INSERT ON scheduler.work"
        " FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    assert (await tick_of(world).run_once()).fired == 2
    rows = await world.rows(
        "SELECT external_id, trouble, (SELECT count(*) FROM scheduler.occurrence"
        " WHERE manifest_id = manifest.id) AS decisions FROM scheduler.manifest"
    )
    by_name = {row["external_id"]: row for row in rows}
    assert {name for name, row in by_name.items() if row["decisions"]} == {"good", "fine"}
    assert "no such thing" in by_name["bad"]["trouble"]


async def test_only_the_holder_of_the_lock_ticks(world):
    await declare_due(world, "a")
    async with world.database.transaction() as connection:
        await connection.execute("SELECT pg_advisory_xact_lock($1)", TICK_LOCK)
        result = await tick_of(world).run_once()
        assert (result.led, result.fired) == (False, 0)
    assert (await tick_of(world).run_once()).fired == 1


async def test_a_change_of_leader_raises_the_epoch(world):
    terms = [("a", 1), ("a", 1), ("b", 2), ("a", 3)]
    for number, (holder, epoch) in enumerate(terms):
        await declare_due(world, f"manifest-{number}")
        assert (await tick_of(world, holder=holder).run_once()).fired == 1
        row = (await world.rows("SELECT epoch, holder FROM scheduler.leader"))[0]
        assert (row["holder"], row["epoch"]) == (holder, epoch)


async def test_a_fresh_system_shows_its_leader_before_anything_is_due(world):
    tick = tick_of(world, holder="first")
    assert (await tick.run_once()).fired == 0
    [row] = await world.rows("SELECT epoch, holder, ticked_at FROM scheduler.leader")
    assert (row["epoch"], row["holder"]) == (1, "first")
    await tick.run_once()
    assert await world.value("SELECT ticked_at FROM scheduler.leader") == row["ticked_at"], (
        "a second pass writes nothing"
    )


async def test_two_leaders_at_once_decide_each_occurrence_once(world, monkeypatch):
    """If the lock failed, the leader's row and the ledger's key would still prevent duplicates."""
    await declare_due(world, *(f"m-{number}" for number in range(40)))
    unlocked = leaders["lead"].replace("pg_try_advisory_xact_lock($1)", "$1::bigint > 0")
    assert unlocked != leaders["lead"]
    monkeypatch.setattr(tick_module, "leaders", {"lead": unlocked})
    results = await asyncio.gather(*(tick_of(world, holder=name).run_once() for name in "ab"))
    assert all(result.led for result in results)
    assert sum(result.fired for result in results) == 40
    assert await world.value("SELECT count(*) FROM scheduler.work") == 40


@pytest.mark.breaks_tables(
    "deletes the work of a decision, so that only the ledger prevents a duplicate"
)
async def test_an_occurrence_that_was_decided_is_not_decided_again(world):
    await declare_due(world, "a")
    due_at = await world.value("SELECT next_due_at FROM scheduler.manifest")
    assert (await tick_of(world).run_once()).fired == 1
    await world.value("DELETE FROM scheduler.work")
    await world.value("UPDATE scheduler.manifest SET next_due_at = $1, wake_at = $1", due_at)
    assert (await tick_of(world).run_once()).fired == 0
    assert await world.value("SELECT count(*) FROM scheduler.occurrence") == 1


async def test_a_cycle_that_cannot_take_all_shares_between_groups(world):
    await declare_due(world, *(f"big-{number}" for number in range(30)), group="big")
    await declare_due(world, *(f"small-{number}" for number in range(3)), group="small")
    assert (await tick_of(world, max_entries=10).run_once()).fired == 10
    rows = await world.rows(
        "SELECT group_name, count(*) FROM scheduler.work"
        " JOIN scheduler.manifest ON manifest.id = manifest_id GROUP BY 1"
    )
    assert {row["group_name"]: row["count"] for row in rows} == {"small": 3, "big": 7}
    result = await tick_of(world, max_entries=10).run_once()
    assert (result.fired, result.rest) == (10, 0.0), "the next cycle starts at once"
    assert (await tick_of(world, max_entries=None).run_once()).fired == 13, "no limit"


async def test_a_backlog_is_counted_once_for_several_cycles(world):
    await declare_due(world, *(f"big-{number}" for number in range(60)), group="big")
    await declare_due(world, *(f"small-{number}" for number in range(6)), group="small")
    tick = tick_of(world, max_entries=5)
    assert (await tick.run_once()).fired == 5
    assert [len(cycle) for cycle in tick._ahead] == [5, 5], "of 66 three cycles were shared"
    moved = await world.rows(
        "UPDATE scheduler.manifest SET next_due_at = now() + interval '1 d',"
        " wake_at = now() + interval '1 d' WHERE wake_at <= now() AND group_name = 'big'"
        " RETURNING id"
    )
    fired = 5
    while (result := await tick.run_once()).rest == 0:
        fired += result.fired
    assert fired + result.fired == 66 - len(moved), "what is no longer due does not fire"


async def test_the_backlog_of_a_single_group_gets_long_cycles(world, monkeypatch):
    await declare_due(world, *(f"big-{number}" for number in range(100)), group="big")
    monkeypatch.setattr(fair_cycles, "_MOST_ALONE", 15)
    tick = tick_of(world, max_entries=2)
    assert (await tick.run_once()).fired == 15
    await declare_due(world, "small", group="small")
    await tick.run_once()
    assert await world.value(
        "SELECT count(*) FROM scheduler.work JOIN scheduler.manifest ON manifest.id = manifest_id"
        " WHERE external_id = 'small'"
    ), "another group waits for one cycle only"
    while (result := await tick.run_once()).rest == 0:
        assert result.fired <= 15
    assert not await world.value("SELECT count(*) FROM scheduler.manifest WHERE wake_at <= now()")


async def test_a_backlog_of_one_group_does_not_hide_another(world, monkeypatch):
    """The count is bounded, and a group outside the counted part still gets its share."""
    await declare_due(world, *(f"big-{number}" for number in range(30)), group="big")
    await declare_due(world, "small", group="small")
    await world.value("UPDATE scheduler.manifest SET wake_at = now() WHERE external_id = 'small'")
    counted = manifests["awake_groups"].replace("LIMIT 100000", "LIMIT 20")
    assert counted != manifests["awake_groups"]
    names = ("awake_others", "awake_of_groups")
    changed = {"awake_groups": counted} | {name: manifests[name] for name in names}
    monkeypatch.setattr(fair_cycles, "manifests", changed)
    monkeypatch.setattr(fair_cycles, "_MOST_COUNTED", 20)
    assert (await tick_of(world, max_entries=10).run_once()).fired == 10
    assert await world.value(
        "SELECT count(*) FROM scheduler.work JOIN scheduler.manifest ON manifest.id = manifest_id"
        " WHERE external_id = 'small'"
    )


async def test_a_scheduler_that_lost_the_lock_drops_its_plan(world):
    await declare_due(world, *(f"m-{number}" for number in range(20)))
    await declare_due(world, *(f"o-{number}" for number in range(20)), group="other")
    tick = tick_of(world, max_entries=5)
    await tick.run_once()
    assert tick._ahead
    async with world.database.transaction() as connection:
        await connection.fetchval("SELECT pg_advisory_xact_lock($1)", TICK_LOCK)
        assert not (await tick.run_once()).led
    assert not tick._ahead
    assert (await tick.run_once()).fired == 5


async def explain(world, query: str, *arguments: str) -> str:
    for number, value in reversed(list(enumerate(arguments, start=1))):
        query = query.replace(f"${number}", value)
    rows = await world.rows(f"EXPLAIN {query}")
    return "\n".join(row[0] for row in rows)


async def test_sleeping_manifests_cost_the_tick_nothing(world):
    """Disabled, blocked and outstanding manifests are not in the index, even if past due."""
    await declare_due(world, *(f"m-{number}" for number in range(3000)))
    await world.value(
        "UPDATE scheduler.manifest SET wake_at = CASE WHEN external_id LIKE '%7'"
        " THEN now() + interval '1 d' END"
    )
    await world.value("VACUUM ANALYZE scheduler.manifest")
    for name, arguments in {
        "awake": ("manifest_awake", "now()", "201"),
        "awake_groups": ("manifest_awake", "now()"),
        "awake_others": ("manifest_group_wake", "now()", "'{}'", "200"),
        "awake_of_groups": ("manifest_group_wake", "now()", "'{job}'", "'{200}'"),
    }.items():
        index, *given = arguments
        plan = await explain(world, manifests[name], *given)
        assert f"Index Only Scan using {index}" in plan, f"{name}: {plan}"
        assert "Seq Scan on manifest " not in plan, f"{name}: {plan}"
    sizes = await world.rows(
        "SELECT relname, reltuples::int FROM pg_class"
        " WHERE relname IN ('manifest_awake', 'manifest_group_wake')"
    )
    assert [row["reltuples"] for row in sizes] == [300, 300]


async def test_a_decision_that_the_ledger_holds_already_is_logged_and_makes_nothing(world, caplog):
    await declare_due(world, "a")
    due_at = await world.value("SELECT next_due_at FROM scheduler.manifest")
    assert (await tick_of(world).run_once()).fired == 1
    [made] = await world.rows("SELECT id, cause FROM scheduler.work")
    await world.value("DELETE FROM scheduler.work")
    await world.value("UPDATE scheduler.occurrence SET outcome = 'completed', settled_at = now()")
    # Simulate a clock that was set back.
    await world.value("UPDATE scheduler.manifest SET next_due_at = $1, wake_at = $1", due_at)
    assert (await tick_of(world).run_once()).fired == 0
    [line] = [text for text in caplog.messages if "duplicate" in text]
    manifest = await world.value("SELECT id FROM scheduler.manifest")
    assert line == (
        f"duplicate decision ignored manifest={manifest} cause={made['cause']} decision=queued "
        f"due_at={due_at.isoformat()}"
    )
    assert await world.value("SELECT count(*) FROM scheduler.work") == 0
