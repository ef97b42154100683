"""The tick on a real database."""

from headway import App, every
from headway_scheduler.declare import declare
from headway_scheduler.tick import Tick
from headway_service_kit.passes import Wakeup


def tick_of(world) -> Tick:
    return Tick(world.database, holder="me", max_entries=200, relay=Wakeup())


async def declare_due(world, *names: str) -> None:
    app = App("test")
    app.job("job")(lambda ctx: None)
    for name in names:
        app.schedule(name, job="job", when=every(hours=1))
    await declare(world.database, app.definitions())
    await world.value("UPDATE scheduler.manifest SET next_due_at = clock_timestamp()")


async def test_a_manifest_that_cannot_be_judged_holds_nobody_else_up(world):
    await declare_due(world, "good", "bad-retry", "bad-zone", "bad-cadence")
    change = "UPDATE scheduler.manifest SET {} WHERE external_id = $1"
    await world.value(change.format("retry = '{\"attempts\": null}'"), "bad-retry")
    await world.value(change.format("zone = 'Mars/Base'"), "bad-zone")
    await world.value(change.format('cadence = \'{"type": "lunar"}\''), "bad-cadence")
    result = await tick_of(world).run_once()
    assert (result.fired, result.skipped) == (1, 3)
    rows = await world.rows(
        "SELECT external_id, reason FROM scheduler.occurrence"
        " JOIN scheduler.manifest ON manifest.id = manifest_id ORDER BY external_id"
    )
    assert {row["external_id"]: row["reason"] for row in rows}["good"] is None
    assert all(
        row["reason"].startswith("cannot be judged") for row in rows if row["external_id"] != "good"
    )
    assert await world.value("SELECT bool_and(next_due_at > now()) FROM scheduler.manifest")
    assert (await tick_of(world).run_once()).fired == 0


async def test_only_the_holder_of_the_lock_ticks(world):
    await declare_due(world, "a")
    async with world.database.transaction() as connection:
        await connection.execute("SELECT pg_advisory_xact_lock($1)", 0x48570001)
        result = await tick_of(world).run_once()
        assert (result.led, result.fired) == (False, 0)
    assert (await tick_of(world).run_once()).fired == 1


async def test_an_occurrence_that_was_decided_is_not_decided_again(world):
    """Should the lock ever fail, the ledger's key holds."""
    await declare_due(world, "a")
    due_at = await world.value("SELECT next_due_at FROM scheduler.manifest")
    assert (await tick_of(world).run_once()).fired == 1
    await world.value("DELETE FROM scheduler.work")
    await world.value("UPDATE scheduler.manifest SET next_due_at = $1", due_at)
    assert (await tick_of(world).run_once()).fired == 0
    assert await world.value("SELECT count(*) FROM scheduler.occurrence") == 1


async def test_the_due_path_uses_its_index(world):
    await declare_due(world, *(f"m-{number}" for number in range(2000)))
    await world.value("UPDATE scheduler.manifest SET next_due_at = now() + interval '1 d'")
    await world.value("ANALYZE scheduler.manifest")
    from headway_scheduler.store import manifests

    async with world.database.acquire() as connection:
        plan = await connection.fetch(
            "EXPLAIN " + manifests["due"].replace("$1", "now()").replace("$2", "200")
        )
    text = "\n".join(row[0] for row in plan)
    assert "manifest_due" in text
    assert "Seq Scan on manifest " not in text
