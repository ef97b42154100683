"""Schedulers that lose the lead without knowing it, and locks whose holder is unaware of them.

The lead lasts for one transaction: the lock, the name of the leader and all that is decided
under it commit together or not at all. So no scheduler can act on a lead that it has lost.
"""

import asyncio
from datetime import datetime
from uuid import uuid4

import asyncpg
import pytest
import pytest_asyncio
from headway import App
from headway_clock import utc_now
from headway_contract import event
from headway_contract.settled import PruneConfirmed, WorkSettled
from headway_postgres_kit import DATABASE_CLOCK, Connection, Database, DatabaseUnavailable
from headway_postgres_kit import database as database_module
from headway_relay import Handover
from headway_scheduler.fire import tick as tick_module
from headway_scheduler.fire.tick import Tick, TickResult
from headway_scheduler.outcomes.settle import take_in
from headway_scheduler.retention import Retention
from headway_scheduler.store import TICK_LOCK, leaders
from support.cadences import when_made_due
from support.invariants import check_invariants
from support.proxy import Proxy
from support.world import until

MANIFESTS = 20
HOLDS_THE_LOCK = """
    SELECT pid FROM pg_locks
    WHERE locktype = 'advisory' AND granted AND objid = $1
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


class PausingClock:
    """PostgreSQL's clock, which at the end of a tick waits until the test lets it go on."""

    def __init__(self) -> None:
        self.readings = 0
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()

    async def now(self, connection: Connection) -> datetime:
        self.readings += 1
        if self.readings == 3:  # all is written, nothing is committed
            self.reached.set()
            await self.go_on.wait()
        return await DATABASE_CLOCK.now(connection)


def tick_of(database: Database, holder: str, clock=DATABASE_CLOCK) -> Tick:
    database.clock = clock
    return Tick(database, holder=holder, max_entries=None, relay=Handover())


@pytest_asyncio.fixture
async def proxy(database_url):
    made = await Proxy(database_url).start()
    yield made
    await made.stop()


@pytest_asyncio.fixture
async def cut_off(proxy):
    """The database as a scheduler sees it whose network can be cut."""
    made = await Database.connect(proxy.url, name="cut-off", answer_seconds=1)
    yield made
    proxy.flow()
    await made.close()


async def declare_due(world) -> None:
    app = App("test")
    app.job("job")(lambda ctx: None)
    for number in range(MANIFESTS):
        app.schedule(f"m{number}", job="job", when=when_made_due())
    await world.declare(app)
    await world.make_due()


async def fired_once(world) -> None:
    assert await world.value("SELECT count(*) FROM scheduler.work") == MANIFESTS
    assert await world.value("SELECT count(*) FROM scheduler.occurrence") == MANIFESTS
    await check_invariants(world.database)


async def lead(world, holder: str) -> TickResult:
    """Tick until the lock is free, as the next leader does."""
    tick = tick_of(world.database, holder)

    async def led():
        result = await tick.run_once()
        return result if result.led else None

    return await until(led, within=15, what="somebody else can lead")


@pytest.mark.parametrize("hears_of_it", [True, False])
async def test_a_leader_whose_lock_is_gone_commits_nothing(world, cut_off, proxy, hears_of_it):
    """Its backend is ended in the middle; with its network cut it does not even notice."""
    await declare_due(world)
    clock = PausingClock()
    first = asyncio.create_task(tick_of(cut_off, "first", clock).run_once())
    await clock.reached.wait()
    assert not (await tick_of(world.database, "second").run_once()).led
    if not hears_of_it:
        proxy.stall()
    ended = f"SELECT pg_terminate_backend(pid, 5000) FROM ({HOLDS_THE_LOCK}) AS holder"
    assert await world.value(ended, TICK_LOCK)
    assert (await lead(world, "second")).fired == MANIFESTS
    clock.go_on.set()
    with pytest.raises(DatabaseUnavailable):
        await first
    assert await world.value("SELECT holder FROM scheduler.leader") == "second"
    await fired_once(world)


async def test_a_lock_granted_to_somebody_who_has_stopped_waiting_is_freed(
    world, proxy, monkeypatch
):
    """The answer is lost, and so is every word that the lock is not wanted any more."""
    monkeypatch.setattr(database_module, "_IDLE_IN_TRANSACTION_SECONDS", 1.0)
    await declare_due(world)
    ghost = await Database.connect(proxy.url, name="ghost", answer_seconds=3)
    # The tick begins its transaction and waits for the lock, which this test holds at first; so
    # there is time to cut the way back before the answer.
    waits = leaders["lead"].replace(
        "pg_try_advisory_xact_lock($1)", "(SELECT true FROM pg_advisory_xact_lock($1))"
    )
    assert waits != leaders["lead"]
    monkeypatch.setattr(tick_module, "leaders", {"lead": waits})
    holder = await asyncpg.connect(world.database_url)
    await holder.execute("SELECT pg_advisory_lock($1)", TICK_LOCK)
    waiting = asyncio.create_task(tick_of(ghost, "ghost").run_once())
    await world.until(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE application_name = 'ghost' AND wait_event = 'advisory'"
    )
    proxy.stall(new_ones_too=True)
    [pid] = await world.rows("SELECT pid FROM pg_stat_activity WHERE application_name = 'ghost'")
    await holder.close()
    await world.until(f"SELECT pid = {pid['pid']} FROM ({HOLDS_THE_LOCK}) AS holder", TICK_LOCK)
    monkeypatch.undo()
    assert (await lead(world, "second")).fired == MANIFESTS
    with pytest.raises(DatabaseUnavailable, match="no answer"):
        await waiting
    proxy.flow()
    await ghost.close()
    await fired_once(world)


async def test_a_leader_that_fell_silent_holds_the_others_up_for_a_bounded_time(
    world, proxy, monkeypatch
):
    """Cut off after it got the lock: the server ends its transaction, and another leads."""
    monkeypatch.setattr(database_module, "_IDLE_IN_TRANSACTION_SECONDS", 1.0)
    await declare_due(world)
    silent = await Database.connect(proxy.url, name="silent", answer_seconds=1)
    clock = PausingClock()
    first = asyncio.create_task(tick_of(silent, "first", clock).run_once())
    await clock.reached.wait()
    proxy.stall(new_ones_too=True)
    clock.go_on.set()
    assert (await lead(world, "second")).fired == MANIFESTS
    with pytest.raises(DatabaseUnavailable):
        await first
    proxy.flow()
    await silent.close()
    await fired_once(world)


class TestPassesWithoutALeader:
    """All other passes run in every scheduler at once; rows and keys keep them apart."""

    async def at_once(self, world, *outcomes) -> None:
        events = [
            event(outcome, id=uuid4(), source="test", subject="x", time=utc_now())
            for outcome in outcomes
        ]

        async def once() -> None:
            async with world.database.transaction() as connection:
                await take_in(connection, events, now=await DATABASE_CLOCK.now(connection))

        await asyncio.gather(*(once() for _ in range(5)))

    async def test_an_outcome_is_taken_in_once(self, world):
        await declare_due(world)
        await tick_of(world.database, "me").run_once()
        works = await world.rows("SELECT id, manifest_id FROM scheduler.work")
        outcomes = [
            WorkSettled(
                work=row["id"],
                round=1,
                manifest_id=row["manifest_id"],
                group="job",
                outcome="completed",
                runs=1,
                attempts=1,
                settled_at=utc_now(),
            )
            for row in works
        ]
        await self.at_once(world, *outcomes)
        assert await world.value("SELECT count(*) FROM scheduler.work") == 0
        numbers = await world.rows("SELECT success_number FROM scheduler.manifest")
        assert {row["success_number"] for row in numbers} == {1}

    async def test_a_prune_is_confirmed_once(self, world):
        await declare_due(world)
        empty = App("test")
        empty.job("job")(lambda ctx: None)
        await world.declare(empty)
        gone = await world.rows("SELECT id, external_id FROM scheduler.manifest")
        confirmed = [
            PruneConfirmed(
                manifest_id=row["id"],
                manifest=row["external_id"],
                group="job",
                confirmed_at=utc_now(),
            )
            for row in gone
        ]
        await self.at_once(world, *confirmed)
        assert await world.value("SELECT count(*) FROM scheduler.manifest") == 0

    async def test_what_is_old_is_forgotten_by_several_at_once(self, world):
        await declare_due(world)
        await tick_of(world.database, "me").run_once()
        passes = [Retention(world.database, days=0).run_once() for _ in range(5)]
        await asyncio.gather(*passes)
        await check_invariants(world.database)
