"""`kill -9` during a run: every work settles."""

import pytest
import pytest_asyncio
from headway_postgres_kit import Database
from support.invariants import check_invariants
from support.processes import Processes
from support.queries import DISABLE_ALL
from support.world import until

QUICK = {"heartbeat_seconds": "0.5", "orphan_timeout_seconds": "4", "provision": "auto"}
# Long enough for a dispatcher to start on a busy machine, before which it answers no worker.
PATIENT = {**QUICK, "orphan_timeout_seconds": "15"}
DEFAULTS = {"provision": "auto"}

RUN_UNDER_WAY = """
    SELECT count(*) FROM dispatcher.run WHERE state = 'in_progress' AND job = 'slow'
"""
NOTHING_UNSETTLED = """
    SELECT NOT EXISTS (SELECT FROM dispatcher.work_queue WHERE state <> 'settled')
       AND NOT EXISTS (SELECT FROM scheduler.work)
       AND NOT EXISTS (SELECT FROM scheduler.outbox)
       AND NOT EXISTS (SELECT FROM dispatcher.outbox)
"""
SLOW_RUNS = """
    SELECT state, attempt, failure FROM dispatcher.run WHERE job = 'slow'
    ORDER BY created_at
"""
FAILED_SLOW_RUNS = """
    SELECT count(*) FROM dispatcher.run WHERE job = 'slow' AND state = 'failed'
"""


class Scene:
    """All services as processes, with a run in progress."""

    def __init__(self, processes: Processes, database: Database) -> None:
        self.processes = processes
        self.database = database

    async def begin(self) -> None:
        self.dispatcher = await self.processes.headway("dispatcher")
        self.worker = await self.processes.headway("worker")
        await self.until("SELECT count(*) FROM dispatcher.worker")
        self.scheduler = await self.processes.headway("scheduler")
        await self.until(RUN_UNDER_WAY)

    async def until(self, query: str, within: float = 30) -> None:
        """Wait for a query's first value to be true."""

        async def ask():
            async with self.database.acquire() as connection:
                return await connection.fetchval(query)

        await until(ask, within=within, what=query)

    async def end(self, *, within: float) -> None:
        """Disable all manifests and wait until all queued work is settled."""
        async with self.database.acquire() as connection:
            await connection.execute(DISABLE_ALL)
        await self.until(NOTHING_UNSETTLED, within)
        await check_invariants(self.database)


@pytest_asyncio.fixture
async def scene(processes, database) -> Scene:
    return Scene(processes, database)


@pytest.mark.parametrize("processes", [QUICK], indirect=True)
@pytest.mark.long
async def test_killing_the_scheduler(scene):
    await scene.begin()
    await scene.processes.kill(scene.scheduler)
    await scene.processes.headway("scheduler")
    await scene.end(within=4 + 30)


@pytest.mark.thorough
@pytest.mark.parametrize("processes", [PATIENT], indirect=True)
async def test_killing_the_dispatcher(scene):
    await scene.begin()
    await scene.processes.kill(scene.dispatcher)
    await scene.processes.headway("dispatcher")
    await scene.end(within=4 + 30)
    # The worker continued: its run was neither lost nor retried.
    async with scene.database.acquire() as connection:
        assert await connection.fetchval(FAILED_SLOW_RUNS) == 0


@pytest.mark.thorough
@pytest.mark.timeout(180)
@pytest.mark.parametrize("processes", [DEFAULTS], indirect=True)
@pytest.mark.long
async def test_killing_the_worker_with_the_default_timeouts(scene):
    await scene.begin()
    await scene.processes.kill(scene.worker)
    await scene.processes.headway("worker")
    await scene.end(within=60 + 30)
    async with scene.database.acquire() as connection:
        rows = await connection.fetch(SLOW_RUNS)
    assert [row["state"] for row in rows[:2]] == ["failed", "completed"]
    assert rows[0]["failure"]["kind"] == "orphaned"
    assert rows[1]["attempt"] == 2


@pytest.mark.parametrize("processes", [QUICK], indirect=True)
@pytest.mark.long
async def test_killing_all_of_them_at_once(scene):
    await scene.begin()
    for program in (scene.scheduler, scene.dispatcher, scene.worker):
        await scene.processes.kill(program)
    for command in ("dispatcher", "worker", "scheduler"):
        await scene.processes.headway(command)
    await scene.end(within=4 + 30)
