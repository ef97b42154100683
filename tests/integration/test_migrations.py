"""A database of the first version, brought up to date with what is in it."""

from datetime import UTC, timedelta
from uuid import UUID, uuid4

import asyncpg
import pytest
import pytest_asyncio
from headway import App, every, skip_missed
from headway_cli.serve.services import apply_migrations
from headway_dispatcher.history.verify import verify
from headway_dispatcher.store import MIGRATIONS as DISPATCHER
from headway_postgres_kit import DATABASE_CLOCK, Database, Migrations
from headway_scheduler.declare.startup import apply
from headway_scheduler.retention import Retention
from headway_scheduler.store import MIGRATIONS as SCHEDULER
from support.timeline import Timeline

pytestmark = pytest.mark.thorough

MANIFEST = """
INSERT INTO scheduler.manifest
    (id, external_id, owner, job, group_name, cadence, zone, priority, retry, timeout_seconds,
     cancel_grace_seconds, on_lost_contact, definition_hash, declared_at, enabled, undeclared_at,
     blocked_by, next_due_at)
SELECT gen_random_uuid(), $1, 'app', 'job', 'job', '{"type": "every", "seconds": 60}', 'UTC', 0,
       '{}', 60, 30, 'stop', 'old', now(), $2, CASE WHEN $3::boolean THEN now() END,
       CASE WHEN $4::boolean THEN gen_random_uuid() END, now() + interval '1 minute'
"""


async def bring_to(database: Database, migrations: Migrations, number: int) -> None:
    """Apply the migrations up to one, and no later ones."""
    steps = migrations.steps
    migrations.steps = steps[:number]
    try:
        await migrations.apply(database)
    finally:
        migrations.steps = steps


@pytest_asyncio.fixture
async def new_database(postgres):
    """A database with nothing in it."""
    url = await postgres.new_database(template="template1")
    database = await Database.connect(url, name="test")
    yield database
    await database.close()
    await postgres.drop(url)


@pytest_asyncio.fixture
async def old_database(new_database):
    """A database as the first migrations left it, with manifests in every state."""
    for migrations in (SCHEDULER, DISPATCHER):
        await bring_to(new_database, migrations, 1)
    async with new_database.acquire() as connection:
        await connection.execute(
            "INSERT INTO scheduler.manifest_group (name, version, changed_at) VALUES ('job', 7, now())"
        )
        for name, enabled, undeclared, blocked in (
            ("plain", True, False, False),
            ("off", False, False, False),
            ("gone", True, True, False),
            ("off-and-gone", False, True, False),
            ("blocked", True, False, True),
            ("busy", True, False, False),
        ):
            await connection.execute(MANIFEST, name, enabled, undeclared, blocked)
        await connection.execute(
            "INSERT INTO scheduler.work (id, manifest_id, cause, queued_at)"
            " SELECT gen_random_uuid(), id, 'due:x', now() FROM scheduler.manifest"
            " WHERE external_id = 'busy'"
        )
    return new_database


async def test_what_was_there_goes_on(old_database):
    await apply_migrations(old_database)
    async with old_database.acquire() as connection:
        rows: list[asyncpg.Record] = await connection.fetch("SELECT * FROM scheduler.manifest")
        states = {
            row["external_id"]: (row["enabled"], row["disabled_by"], row["wake_at"] is not None)
            for row in rows
        }
        versions = await connection.fetchval("SELECT count(*) FROM scheduler.timing")
    assert states == {
        "plain": (True, None, True),
        "off": (False, "operator", False),
        "gone": (False, "pruned", False),
        "off-and-gone": (False, "operator", False),
        "blocked": (True, None, False),
        "busy": (True, None, False),
    }
    assert rows[0]["timing"] == {"cadence": {"type": "every", "seconds": 60}, "zone": "UTC"}
    assert versions == len(rows)


async def test_letters_that_block_are_asked_about_also_when_they_no_longer_do(old_database):
    await apply_migrations(old_database)
    async with old_database.acquire() as connection:
        letters = await connection.fetch(
            "SELECT dead_letter, manifest_id FROM scheduler.unresolved"
        )
        blocked = await connection.fetch(
            "SELECT blocked_by, id FROM scheduler.manifest WHERE blocked_by IS NOT NULL"
        )
    assert len(letters) == 1
    assert list(map(tuple, letters)) == list(map(tuple, blocked))


async def test_and_can_be_declared_again(old_database):
    await apply_migrations(old_database)
    app = App("app")
    app.job("job")(lambda ctx: None)
    for name in ("plain", "off", "gone", "off-and-gone", "blocked", "busy"):
        app.schedule(name, job="job", when=every(minutes=1))
    await apply(old_database, app.definitions(), policy="delete", clock=DATABASE_CLOCK)
    async with old_database.acquire() as connection:
        rows = await connection.fetch("SELECT external_id, enabled FROM scheduler.manifest")
        version = await connection.fetchval("SELECT version FROM scheduler.manifest_group")
    assert {row["external_id"] for row in rows if not row["enabled"]} == {"off", "off-and-gone"}
    assert version == 7, "unchanged settings keep their version"


RUN = """
WITH groups AS (
    INSERT INTO dispatcher.group_limit (name) VALUES ('ops')
), works AS (
    INSERT INTO dispatcher.work_queue
        (id, round, slot, group_name, job, input, cause, queued_at, priority, rank, not_before,
         retry, timeout_seconds, cancel_grace_seconds, on_lost_contact, state, runs, attempts,
         run_id, outcome, settled_at, received_at)
    SELECT id, 1, 0, 'ops', 'job', '[1]', 'x', now(), 0, now(), now(), '{}', 60, 30, 'stop',
           'settled', 1, 1, id, 'dead_lettered', now(), now()
    FROM unnest($1::uuid[]) AS id
), leases AS (
    INSERT INTO dispatcher.lease (id, token, job, created_at) SELECT id, 't', 'job', now()
    FROM unnest($1::uuid[]) AS id
), runs AS (
    INSERT INTO dispatcher.metadata
        (run_id, work_id, lease_id, group_name, job, round, attempt, state, created_at, started_at,
         finished_at, patience_seconds, failure)
    SELECT id, id, id, 'ops', 'job', 1, 1, 'failed', now(), now(), now(), 100, '{"kind": "x"}'
    FROM unnest($1::uuid[]) AS id
), letters AS (
    INSERT INTO dispatcher.dead_letter
        (id, work_id, round, group_name, job, reason, failure, attempts, state, created_at)
    SELECT id, id, 1, 'ops', 'job', 'x', '{}', 1, 'awaiting', now() FROM unnest($1::uuid[]) AS id
)
INSERT INTO dispatcher.history
    (event_id, type, subject, source, occurred_at, data, accepted, run_id, lease_id, recorded_at)
SELECT 'e' || days, 'headway.run.failed.v1', 's', 'worker/w', now(), '{}', true, id, id,
       now() - days * interval '1 day'
FROM unnest($1::uuid[]) AS id, unnest('{0,40}'::integer[]) AS days
"""


async def test_history_moves_to_its_days_and_begins_with_how_the_tables_stand(old_database):
    works = [uuid4(), uuid4()]
    async with old_database.acquire() as connection:
        await connection.execute(RUN, works)
    await apply_migrations(old_database)
    async with old_database.acquire() as connection:
        rows = await connection.fetch(
            "SELECT tableoid::regclass::text AS day, type, work_id, recorded_at, id"
            " FROM dispatcher.history ORDER BY id"
        )
    old, snapshots = rows[:4], rows[4:]
    assert {row["work_id"] for row in old} == {row["work_id"] for row in snapshots} == set(works)
    assert len(snapshots) == 2
    assert all(
        row["day"] == f"dispatcher.history_{row['recorded_at'].astimezone(UTC):%Y%m%d}"
        for row in rows
    )
    assert len({row["id"] for row in rows}) == 6
    verified = await verify(old_database)
    assert (verified.differences, verified.works, verified.runs) == ([], 2, 2)


async def test_letters_learn_what_was_heard_of_their_runs_after_they_were_made(old_database):
    async with old_database.acquire() as connection:
        await connection.execute(RUN, [uuid4()])
    [told] = [step.number for step in DISPATCHER.steps if step.title == "letters"]
    await bring_to(old_database, DISPATCHER, told - 1)
    async with old_database.acquire() as connection:
        await connection.execute(
            "UPDATE dispatcher.dead_letter SET runs = jsonb_set(runs, '{0,started_at}', 'null')"
        )
    await apply_migrations(old_database)
    assert (await verify(old_database)).differences == []


DISORDER = """
UPDATE dispatcher.metadata
SET started_at = created_at - interval '40 minutes', finished_at = created_at - interval '1 hour'
"""


async def test_runs_that_ended_before_they_began_are_put_in_order(old_database):
    """Also a run that never began; the dead letters of both, and history, agree."""
    unbegun, begun = works = [uuid4(), uuid4()]
    async with old_database.acquire() as connection:
        await connection.execute(RUN, works)
        await connection.execute(DISORDER)
        await connection.execute(
            "UPDATE dispatcher.metadata SET started_at = NULL WHERE run_id = $1", unbegun
        )
    await apply_migrations(old_database)
    assert (await verify(old_database)).differences == []
    async with old_database.acquire() as connection:
        rows = await connection.fetch(
            "SELECT run_id, started_at - created_at AS start, finished_at - created_at AS finish"
            " FROM dispatcher.metadata"
        )
        with pytest.raises(asyncpg.CheckViolationError, match="times_in_order"):
            await connection.execute(DISORDER + " WHERE run_id = $1", begun)
    ordered = {row["run_id"]: (row["start"], row["finish"]) for row in rows}
    assert ordered == {unbegun: (None, timedelta(0)), begun: (timedelta(0), timedelta(0))}


async def test_what_another_jitter_put_off_is_looked_at_when_it_is_due(new_database):
    """So that it fires at the time that is drawn for it now: not later, and not early."""
    [drawn] = [step for step in SCHEDULER.steps if step.title == "jitter_from_names"]
    await bring_to(new_database, DISPATCHER, len(DISPATCHER.steps))
    # Today's code writes the manifests, so it needs today's tables.
    await SCHEDULER.apply(new_database)
    timeline = Timeline(new_database)
    app = App("app")
    app.job("job")(lambda ctx: None)
    app.schedule("punctual", job="job", when=every(hours=1))
    app.schedule("late", job="job", when=every(hours=1, jitter=1800, misfire=skip_missed()))
    await timeline.declare(app)
    before = await timeline.manifest("late")
    await timeline.rows(
        "UPDATE scheduler.manifest SET wake_at = next_due_at + interval '1799 s'"
        " WHERE external_id = 'late'"
    )
    await timeline.rows(drawn.sql)
    timeline.clock.at = before["next_due_at"]
    await timeline.tick()
    assert await timeline.ledger("punctual") == [("60", "queued", None)]
    assert await timeline.ledger("late") == []
    assert (await timeline.manifest("late"))["wake_at"] == before["wake_at"]
    timeline.clock.at = before["wake_at"]
    await timeline.tick()
    assert await timeline.ledger("late") == [("60", "queued", None)]


async def test_keys_from_when_ids_were_derived_go_on_finding_their_work(old_database):
    [drawn] = [step.number for step in SCHEDULER.steps if step.title == "keys_find_work"]
    await bring_to(old_database, SCHEDULER, drawn - 1)
    async with old_database.acquire() as connection:
        await connection.execute(
            "INSERT INTO scheduler.job (name, owner, description, declared_at)"
            " VALUES ('job', 'app', '', now())"
        )
        before = {key: await enqueue(connection, key) for key in ("waiting", "recent", "old")}
        assert before["old"] == await connection.fetchval(
            "SELECT headway.work_id('enqueue:job:old')"
        )
        unnamed = await enqueue(connection, None)
        for key, days in (("recent", 29), ("old", 31)):
            await connection.execute(
                "UPDATE scheduler.enqueued SET state = 'queued',"
                " decided_at = now() - $2 * interval '1 day' WHERE key = $1",
                key,
                days,
            )
    await apply_migrations(old_database)
    async with old_database.acquire() as connection:
        assert {key: await enqueue(connection, key) for key in before} == before
        with pytest.raises(asyncpg.UniqueViolationError, match="with other parameters"):
            await connection.fetchval("SELECT headway.enqueue('job', '8', key => 'recent')")
        assert await connection.fetchval("SELECT to_regproc('headway.work_id') IS NULL")
    await Retention(old_database, days=30, clock=DATABASE_CLOCK).run_once()
    async with old_database.acquire() as connection:
        again = {key: await enqueue(connection, key) for key in before}
        assert {key for key in before if again[key] != before[key]} == {"old"}
        rows = await connection.fetch("SELECT work_id FROM scheduler.enqueued")
    assert {row["work_id"] for row in rows} == {unnamed, *again.values()}


async def enqueue(connection, key: str | None) -> UUID:
    return await connection.fetchval("SELECT headway.enqueue('job', '7', key => $1)", key)


async def test_groups_keep_the_limits_that_code_stated_and_operators_set(new_database):
    """A retry policy that an operator changed becomes two fields; each limit gets its owner."""
    [owned] = [step.number for step in SCHEDULER.steps if step.title == "group_ownership"]
    await bring_to(new_database, SCHEDULER, owned - 1)
    async with new_database.acquire() as connection:
        await connection.execute(
            "INSERT INTO scheduler.manifest_group"
            " (name, owner, max_active, priority, enabled, touched, declared, changed_at) VALUES"
            " ('job', 'app', 3, 5, true, '{priority}', '{\"priority\": 2}', now()),"
            " ('enqueued', NULL, NULL, 0, true, '{}', '{}', now())"
        )
        await connection.execute(
            "INSERT INTO scheduler.manifest"
            " (id, external_id, owner, job, group_name, timing, priority, retry, timeout_seconds,"
            "  cancel_grace_seconds, on_lost_contact, definition_hash, declared_at, touched) VALUES"
            " (gen_random_uuid(), 'a', 'app', 'job', 'job', '{}', 0, '{\"attempts\": 9}', 60, 30,"
            "  'stop', 'old', now(), '{enabled,retry}')"
        )
    await apply_migrations(new_database)
    async with new_database.acquire() as connection:
        rows = await connection.fetch("SELECT name, declared FROM scheduler.manifest_group")
        [manifest] = await connection.fetch(
            "SELECT touched, definition_hash FROM scheduler.manifest"
        )
    assert {row["name"]: row["declared"] for row in rows} == {
        "job": {
            "max_active": {"value": 3, "app": "app"},
            "priority": {"value": 2, "app": "app"},
        },
        "enqueued": {},
    }
    assert tuple(manifest) == (["enabled", "attempts", "interval"], "")
