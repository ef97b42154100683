"""Interrupted reconciliation: doubts persist, failures are visible, no transaction stays open."""

import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import UUID

import pytest
from headway_clock import utc_now
from headway_contract import subjects
from headway_contract.reconcile import ReconcileAnswer, ReconcileQuestion
from headway_jetstream_kit.endpoints import serve, typed
from headway_postgres_kit import Database, DatabaseUnavailable
from headway_scheduler.healing import healing
from headway_scheduler.healing.healing import Healing, ReconcileFailed
from headway_scheduler.store import heals
from headway_service_kit.passes import Wakeup
from support.apps import nightly
from support.plans import outline, rows_read, scans_of
from support.world import until

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.breaks_tables("outstanding work is written by hand"),
]

PENDING = """
INSERT INTO scheduler.work (id, cause, slot, queued_at, reconcile_at)
SELECT gen_random_uuid(), 'test', 0, clock_timestamp() - interval '1 day',
       clock_timestamp() + interval '1 hour'
FROM generate_series(1, $1::integer)
"""


class Dispatcher:
    """Answer reconcile questions as the test demands, and record them."""

    def __init__(self) -> None:
        self.works: list[UUID] = []
        self.standing: list[ReconcileQuestion] = []
        self.fails = False
        self.meanwhile: Callable[[], Awaitable[None]] | None = None

    async def answer(self, question: ReconcileQuestion) -> ReconcileAnswer:
        if self.meanwhile is not None:
            await self.meanwhile()
        if question.works:
            self.works += [outstanding.work for outstanding in question.works]
        else:
            if self.fails:
                raise RuntimeError("a bug")
            self.standing.append(question)
        return ReconcileAnswer()


@pytest.fixture
async def dispatcher(world):
    made = Dispatcher()
    await world.provision()
    await serve(
        world.broker,
        service="dispatcher",
        queue=subjects.DISPATCHERS,
        endpoints={subjects.RECONCILE_QUESTION: typed(ReconcileQuestion, made.answer)},
    )
    return made


def healing_of(world, *, database: Database | None = None, holder: str = "me") -> Healing:
    return Healing(
        database or world.database,
        world.broker,
        holder=holder,
        ask_after_seconds=3600,
        relay=Wakeup(),
        tick=Wakeup(),
    )


async def wipe(world) -> None:
    """Recreate the work stream, so that the scheduler asks about everything."""
    await world.broker.api(f"STREAM.DELETE.{subjects.WORK_STREAM}")
    await world.provision()


@asynccontextmanager
async def without_transactions(database, monkeypatch):
    def refuse():
        raise DatabaseUnavailable("gone")

    with monkeypatch.context() as patch:
        patch.setattr(database, "transaction", refuse)
        yield


async def test_a_doubt_outlives_an_error_of_the_database(world, dispatcher, monkeypatch):
    me = healing_of(world)
    await world.value(PENDING, 3)
    await me.run_once()
    assert dispatcher.works == [], "the next pass is not due yet"
    await wipe(world)
    async with without_transactions(world.database, monkeypatch):
        with pytest.raises(DatabaseUnavailable):
            await me.run_once()
    await me.run_once()
    assert len(set(dispatcher.works)) == 3
    await me.run_once()
    assert len(dispatcher.works) == 3, "the doubt is resolved"


async def test_everything_in_doubt_is_asked_about_once_over_several_passes(
    world, dispatcher, monkeypatch
):
    monkeypatch.setattr(healing.reconcile, "RECONCILE_LIMIT", 2)
    monkeypatch.setattr(healing, "_MOST_PAGES", 2)
    me = healing_of(world)
    await world.value(PENDING, 9)
    await me.run_once()
    await wipe(world)
    passes = [await me.run_once() for _ in range(3)]
    assert [result.unfinished for result in passes] == [True, True, False]
    assert len(dispatcher.works) == len(set(dispatcher.works)) == 9


async def test_an_error_reply_is_a_failure_and_its_question_is_asked_again(world, dispatcher):
    await world.declare(nightly())
    me = healing_of(world)
    dispatcher.fails = True
    with pytest.raises(ReconcileFailed, match=r"kind=failed error=\S+: the service failed"):
        await me.run_once()
    dispatcher.fails = False
    assert await me.run_once() is not None
    kinds = {version.kind for question in dispatcher.standing for version in question.versions}
    assert kinds == {"group", "job"}
    dispatcher.standing.clear()
    await me.run_once()
    assert dispatcher.standing == [], "answered, so it is not repeated before it is due"


async def test_a_failure_is_a_warning_and_the_pass_is_unhealthy(world, dispatcher, caplog):
    dispatcher.fails = True
    scheduler = await world.scheduler(nightly(), ask_after_seconds=0.4)

    async def report():
        _, body = await scheduler.health.report("/readyz")
        return body if "healing:" in body else None

    body = await until(report, within=20, what="healing is not ready")
    assert f"kind=failed error={subjects.RECONCILE_QUESTION}" in body
    warnings = [
        record.getMessage() for record in caplog.records if record.levelno == logging.WARNING
    ]
    assert any("reconcile failed: kind=failed" in line for line in warnings)
    dispatcher.fails = False

    async def ready():
        return (await scheduler.health.report("/readyz"))[0] == 200

    await until(ready, within=20, what="ready again")


async def test_a_missing_dispatcher_is_logged_once_and_is_no_failure(world, caplog):
    await world.provision()
    await world.declare(nightly())
    me = healing_of(world)
    for _ in range(3):
        assert await me.run_once() is None
    messages = [
        record.getMessage() for record in caplog.records if "no service answers" in record.message
    ]
    assert len(messages) == 1


async def test_no_transaction_is_open_while_the_dispatcher_is_asked(world, dispatcher):
    await world.value(PENDING, 1)
    await world.value("UPDATE scheduler.work SET reconcile_at = NULL")
    database = await Database.connect(world.database_url, name="healer")
    me, other = healing_of(world, database=database), healing_of(world, holder="other")
    seen = []

    async def look():
        seen.append(
            await world.value(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE application_name = 'healer' AND xact_start IS NOT NULL"
            )
        )
        seen.append(await other.run_once())

    dispatcher.meanwhile = look
    assert (await me.run_once()).reconciled == 1
    await database.close()
    assert seen == [0, None], "only one scheduler reconciles at a time"
    assert await other.run_once() is not None, "it takes over at once"


@pytest.mark.parametrize("ago", [timedelta(minutes=1), timedelta(hours=-1)], ids=["old", "future"])
async def test_the_turn_of_a_killed_scheduler_lapses(world, dispatcher, ago):
    other, me = healing_of(world, holder="killed"), healing_of(world)
    await other._take_turn()
    assert await me.run_once() is None
    await world.value("UPDATE scheduler.leader SET ticked_at = ticked_at - $1::interval", ago)
    assert await me.run_once() is not None


async def test_due_work_is_found_by_index(world):
    """Half of the work was reconciled before; only a few rows of each half are due."""
    await world.value(PENDING, 10_000)
    await world.value(
        "INSERT INTO scheduler.work (id, cause, slot, queued_at)"
        " SELECT gen_random_uuid(), 'test', 0, clock_timestamp()"
        " FROM generate_series(1, 10_000)"
    )
    await world.value(
        "UPDATE scheduler.work SET reconcile_at = reconcile_at - interval '2 hours',"
        " queued_at = queued_at - interval '1 day' WHERE id IN (SELECT id FROM ("
        " SELECT id, row_number() OVER (PARTITION BY reconcile_at IS NULL) AS number"
        " FROM scheduler.work) AS few WHERE number <= 5)"
    )
    await world.value("ANALYZE scheduler.work")
    now = utc_now()
    async with world.database.acquire() as connection:
        await connection.execute("SET plan_cache_mode = force_generic_plan")
        text = await connection.fetchval(
            f"EXPLAIN (ANALYZE, FORMAT JSON) {heals['due']}", now, now - timedelta(hours=1), 1000
        )
        await connection.execute("RESET plan_cache_mode")
    plan = json.loads(text)[0]["Plan"]
    assert scans_of(plan, "work") <= {"Index Scan"}, outline(plan)
    assert "Sort" not in outline(plan), outline(plan)
    assert rows_read(plan) == 10, outline(plan)
