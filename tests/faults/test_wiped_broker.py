"""JetStream loses what it acknowledged, under load: everything settles all the same.

Claims are not projected yet and one worker is frozen when it happens. Afterwards every piece
of work that was ever queued has come to its end, nothing that had been settled before has
changed, and each piece of work whose body ran more than once can be told by its records.

`HEADWAY_FAULT_SECONDS` makes the load before and after the loss longer (`just faults`).
"""

import asyncio
import importlib.util
import os
import shutil
import signal
from collections import Counter
from pathlib import Path
from uuid import UUID

import pytest
import pytest_asyncio
from headway_contract import subjects
from headway_embedded import NatsServer
from headway_jetstream_kit import Broker
from headway_jetstream_kit.provisioning import consumer_info
from support.invariants import check_invariants
from support.processes import TESTS, Processes
from support.servers import needs_embedded
from support.world import World, until

SECONDS = float(os.environ.get("HEADWAY_FAULT_SECONDS", "3"))
APP = TESTS / "support" / "counting_app.py"
STREAMS = (
    subjects.WORK_STREAM,
    subjects.RUNS_STREAM,
    subjects.EVENTS_STREAM,
    subjects.SETTLED_STREAM,
)

SETTLED = """
    SELECT id, outcome, settled_at, run_id, attempts FROM dispatcher.work_queue
    WHERE state = 'settled'
"""
# Work of which the records say that its body ran, or may have run, more than once.
RECORDED_AGAIN = """
    SELECT DISTINCT work_id FROM dispatcher.run
    WHERE reissued > 0 OR begun_elsewhere > 0 OR attempt > 1
       OR failure ->> 'kind' IN ('orphaned', 'undelivered', 'worker_stopped', 'lost_contact')
"""


class Scene:
    """Services and a worker in this process, another worker in one of its own, and load."""

    def __init__(self, world: World, nats: NatsServer, processes: Processes, folder: Path) -> None:
        self.world = world
        self.nats = nats
        self.processes = processes
        self.folder = folder
        self.app = _load_app(folder)

    async def begin(self) -> None:
        self.dispatcher = await self.world.dispatcher()
        await self.world.worker(self.app, worker_slots=6)
        self.other = await self.processes.headway("worker", HEADWAY_WORKER_SLOTS="4")
        await self.world.until("SELECT count(*) = 2 FROM dispatcher.worker", within=30)
        self.scheduler = await self.world.scheduler(self.app, ask_after_seconds=1.0)
        await self.world.until(
            "SELECT count(*) > 20 FROM dispatcher.work_queue WHERE state = 'settled'", within=30
        )
        await asyncio.sleep(SECONDS)

    async def freeze(self) -> None:
        """Stop the projector, so that claims pile up, and freeze one worker."""
        await self.dispatcher.end_pass("projector")
        await until(self._has_unprojected, within=10, what="claims that are not projected")
        os.kill(self.other.process_id, signal.SIGSTOP)
        self.settled = {row["id"]: tuple(row) for row in await self.world.rows(SETTLED)}

    async def go_on(self) -> None:
        """Another dispatcher projects; the frozen worker comes back when it is given up."""
        await self.world.dispatcher()
        await asyncio.sleep(SECONDS)
        os.kill(self.other.process_id, signal.SIGCONT)

    async def end(self) -> "Counter[UUID]":
        """Fire no more; returns how often the body of each piece of work ran."""
        await self.scheduler.end_pass("tick")
        await self.world.until_settled(within=90)
        await check_invariants(self.world.database)
        assert (
            await self.world.value(
                "SELECT count(*) FROM scheduler.occurrence"
                " WHERE decision = 'queued' AND outcome IS DISTINCT FROM 'completed'"
            )
            == 0
        )
        after = {row["id"]: tuple(row) for row in await self.world.rows(SETTLED)}
        assert {work: after[work] for work in self.settled} == self.settled
        lines = (self.folder / "executions").read_text().splitlines()
        return Counter(UUID(line.split()[0]) for line in lines)

    async def _has_unprojected(self) -> bool:
        info = await consumer_info(
            self.world.broker, subjects.EVENTS_STREAM, subjects.EVENTS_CONSUMER
        )
        return info["num_pending"] + info["num_ack_pending"] >= 4


def _load_app(folder: Path):
    os.environ["HEADWAY_TEST_FOLDER"] = str(folder)
    spec = importlib.util.spec_from_file_location("counting_app", APP)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.app


@pytest_asyncio.fixture
async def scene(database_url, database, tmp_path):
    needs_embedded()
    nats = NatsServer(tmp_path / "own-nats")
    await nats.start()
    broker = await Broker.connect(nats.url, name="test")
    world = World(database_url, nats.url, database, broker)
    processes = Processes(database_url, nats.url, tmp_path, app=str(APP))
    yield Scene(world, nats, processes, tmp_path)
    await processes.stop()
    await world.stop()
    await broker.close()
    await nats.stop()


async def wipe(scene: Scene) -> None:
    """The server dies, and its storage with it."""
    await scene.nats.kill()
    shutil.rmtree(scene.nats.folder / "nats")
    await scene.nats.start()


async def delete_streams(scene: Scene) -> None:
    """Delete every stream while the server keeps running."""
    for stream in STREAMS:
        await scene.world.broker.api(f"STREAM.DELETE.{stream}")


async def roll_back(scene: Scene) -> None:
    """The storage is put back to what it was a while ago."""
    await scene.nats.stop()
    store = scene.nats.folder / "nats"
    shutil.rmtree(store)
    shutil.copytree(scene.folder / "copy", store)
    await scene.nats.start()


async def copy_store(scene: Scene) -> None:
    await scene.nats.stop()
    shutil.copytree(scene.nats.folder / "nats", scene.folder / "copy")
    await scene.nats.start()


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "lose",
    [wipe, *(pytest.param(loss, marks=pytest.mark.long) for loss in (delete_streams, roll_back))],
)
async def test_everything_settles_once_and_second_executions_are_told(scene, lose):
    await scene.begin()
    if lose is roll_back:
        await copy_store(scene)
        await asyncio.sleep(SECONDS)
    await scene.freeze()
    await lose(scene)
    await scene.go_on()
    executions = await scene.end()
    settled = await scene.world.value("SELECT count(*) FROM dispatcher.work_queue")
    assert len(executions) == settled
    twice = {work for work, times in executions.items() if times > 1}
    recorded = {row["work_id"] for row in await scene.world.rows(RECORDED_AGAIN)}
    assert twice <= recorded
    print(f"{lose.__name__}: {settled} works, {len(twice)} ran again, {len(recorded)} recorded")
