"""A database of the first version, brought up to date with what is in it."""

import asyncpg
import pytest_asyncio
from headway import App, every
from headway_cli.services import apply_migrations
from headway_dispatcher.store import MIGRATIONS as DISPATCHER
from headway_postgres_kit import DATABASE_CLOCK, Database
from headway_scheduler.startup import apply
from headway_scheduler.store import MIGRATIONS as SCHEDULER

MANIFEST = """
INSERT INTO scheduler.manifest
    (id, external_id, owner, job, group_name, cadence, zone, priority, retry, timeout_seconds,
     cancel_grace_seconds, on_lost_contact, definition_hash, declared_at, enabled, undeclared_at,
     blocked_by, next_due_at)
SELECT gen_random_uuid(), $1, 'app', 'job', 'job', '{"type": "every", "seconds": 60}', 'UTC', 0,
       '{}', 60, 30, 'stop', 'old', now(), $2, CASE WHEN $3::boolean THEN now() END,
       CASE WHEN $4::boolean THEN gen_random_uuid() END, now() + interval '1 minute'
"""


@pytest_asyncio.fixture
async def old_database(postgres):
    """A database as the first migrations left it, with manifests in every state."""
    url = await postgres.new_database(template="template1")
    database = await Database.connect(url, name="test")
    for migrations in (SCHEDULER, DISPATCHER):
        steps = migrations.steps
        migrations.steps = steps[:1]
        try:
            await migrations.apply(database)
        finally:
            migrations.steps = steps
    async with database.acquire() as connection:
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
    yield database
    await database.close()
    await postgres.drop(url)


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
