"""Several schedulers and dispatchers: each time is decided once, and limits are exact."""

import asyncio

import asyncpg
import pytest
from headway import App, every
from support.gates import WATCH_CAPS
from support.invariants import check_invariants
from support.world import until

pytestmark = pytest.mark.long

GLOBAL_CAP = 6
GROUP_CAP = 2


async def install_watch(world) -> None:
    async with world.database.acquire() as connection:
        await connection.execute(WATCH_CAPS.replace("{cap}", str(GLOBAL_CAP)))


def busy_app() -> App:
    app = App("test")
    app.group("narrow", max_active=GROUP_CAP)

    @app.job("narrow-job", group="narrow")
    async def narrow(ctx, number: int):
        await asyncio.sleep(0.01)

    @app.job("wide-job", group="wide")
    async def wide(ctx, number: int):
        await asyncio.sleep(0.01)

    for number in range(15):
        app.schedule(f"narrow-{number}", job=narrow, when=every(seconds=1), input=number)
        app.schedule(f"wide-{number}", job=wide, when=every(seconds=1), input=number)
    return app


async def test_two_schedulers_and_three_dispatchers(world):
    await install_watch(world)
    app = busy_app()
    for _ in range(3):
        # On a busy machine a slow worker must not count as gone.
        await world.dispatcher(max_active=GLOBAL_CAP, orphan_timeout_seconds=60)
    await world.worker(app, worker_slots=20)
    await world.worker(app, worker_slots=20)
    schedulers = [await world.scheduler(app), await world.scheduler(app)]
    await world.until(
        "SELECT count(DISTINCT due_at) >= 3 FROM dispatcher.run WHERE state = 'completed'",
        within=60,
    )
    for scheduler in schedulers:
        await scheduler.end_pass("tick")
    await world.until_settled(at_least=30, within=60)
    # Each decision has exactly one piece of work.
    assert await world.value(
        "SELECT (SELECT array_agg(work_id ORDER BY work_id) FROM scheduler.occurrence"
        "        WHERE decision = 'queued')"
        "     = (SELECT array_agg(id ORDER BY id) FROM dispatcher.work_queue)"
    )
    assert await world.value(
        "SELECT bool_and(runs = 1 AND outcome = 'completed') FROM dispatcher.work_queue"
    )
    for service in world.services:

        async def is_ready(service=service):
            return (await service.health.report("/readyz"))[0] == 200

        await until(is_ready, within=30, what=f"{service.name} is ready")
    await check_invariants(world.database)


async def test_the_watch_itself_bites(world):
    """Show that the watch detects an exceeded limit."""
    await install_watch(world)
    async with world.database.acquire() as connection:
        await connection.execute(
            "INSERT INTO dispatcher.group_limit (name, max_active) VALUES ('narrow', 2)"
        )
        with pytest.raises(asyncpg.RaiseError, match="group narrow is exceeded"):
            async with connection.transaction():
                for number in range(3):
                    await connection.execute(_INSERT_RUN, number)


_INSERT_RUN = """
WITH lease AS (
    INSERT INTO dispatcher.lease (id, token, job, created_at)
    VALUES (gen_random_uuid(), '', 'job', now()) RETURNING id
)
INSERT INTO dispatcher.work_queue
    (id, round, slot, group_name, job, cause, queued_at, priority, rank, not_before, terms,
     state, run_id, lease_id, received_at)
SELECT gen_random_uuid(), 1, $1, 'narrow', 'job', 'test', now(), 0, now(), now(), '{}',
       'dispatched', gen_random_uuid(), lease.id, now()
FROM lease
"""
