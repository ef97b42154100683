"""Workers under the permissions that PROTOCOL.md publishes, on a real NATS."""

import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest
import pytest_asyncio
from headway_embedded import NatsServer
from headway_jetstream_kit import Broker
from support import typescript
from support.processes import Processes
from support.servers import needs_embedded
from support.tiers import first_in_each_tier
from support.work_events import queue
from support.world import World, until

PROTOCOL = Path(__file__).parents[2] / "proto-schemas" / "PROTOCOL.md"
BODIES = typescript.PACKAGE / "test" / "worker_under_test.ts"
APP = """
from headway import App
app = App("restricted")
@app.job("py-talks", group="ops")
async def talks(ctx):
    ctx.progress(50, "half way")
    ctx.log.info("fetched")
"""
TALKED = "SELECT count(*) FROM dispatcher.run_log JOIN dispatcher.run USING (run_id) WHERE job = $1"
COMPLETED = "SELECT count(*) FROM dispatcher.run WHERE job = $1 AND state = 'completed'"


def permissions_for(name: str, jobs: Sequence[str]) -> str:
    """Return the permissions of PROTOCOL.md for one worker."""
    [block] = re.findall(r"```conf\n(permissions .*?)```", PROTOCOL.read_text(), re.DOTALL)
    lines = []
    for line in block.replace("<name>", name).splitlines():
        lines += [line.replace("<job>", job) for job in jobs] if "<job>" in line else [line]
    return "\n".join(lines)


class Restricted:
    """A NATS server with a user for the services and one for each worker."""

    def __init__(self, world: World, processes: Processes, url: str) -> None:
        self.world = world
        self.processes = processes
        self._url = urlsplit(url)

    def url_of(self, user: str) -> str:
        netloc = f"{user}:secret@{self._url.hostname}:{self._url.port}"
        return urlunsplit(self._url._replace(netloc=netloc))


def jobs_of_typescript() -> list[str]:
    return re.findall(r'worker\.job\("([^"]+)"', BODIES.read_text())


@pytest_asyncio.fixture
async def restricted(database_url, database, tmp_path) -> AsyncIterator[Restricted]:
    needs_embedded()
    workers = {
        "py-1": permissions_for("py-1", ["py-talks"]),
        "ts-1": permissions_for("ts-1", jobs_of_typescript()),
        # This worker may subscribe, but not to its own inbox.
        "ts-2": permissions_for("ts-2", jobs_of_typescript()).replace("_INBOX.ts-2", "_INBOX.ts-3"),
    }
    users = "\n".join(
        f'{{ user: "{name}", password: "secret", {permissions} }}'
        for name, permissions in workers.items()
    )
    folder = tmp_path / "restricted"
    folder.mkdir()
    (folder / "nats.password").write_text("secret\n")
    server = NatsServer(
        folder,
        config_extra=f"authorization {{ users: [{{ user: headway, password: secret }}\n{users}] }}",
    )
    await server.start()
    broker = await Broker.connect(server.url, name="test")
    world = World(database_url, server.url, database, broker)
    processes = Processes(database_url, server.url, tmp_path)
    try:
        yield Restricted(world, processes, server.url)
    finally:
        await processes.stop()
        print(processes.logs())
        await world.stop()
        await broker.close()
        await server.stop()


@pytest.mark.parametrize("language", first_in_each_tier(["python", "typescript"]))
async def test_the_published_permissions_are_enough(restricted, tmp_path, language):
    world, processes = restricted.world, restricted.processes
    await world.dispatcher()
    if language == "python":
        app, job = tmp_path / "restricted_app.py", "py-talks"
        app.write_text(APP)
        await processes.headway(
            *("worker", "--app", str(app)),
            HEADWAY_WORKER_NAME="py-1",
            HEADWAY_NATS_URL=restricted.url_of("py-1"),
        )
    else:
        job = "ts-talks"
        needs_typescript()
        await processes.node(
            str(typescript.WORKER_UNDER_TEST),
            WORKER_NAME="ts-1",
            HEADWAY_NATS_URL=restricted.url_of("ts-1"),
        )
    await world.until("SELECT count(*) FROM dispatcher.worker")
    await queue(world, job=job)
    await world.until(COMPLETED, job)
    await world.until(TALKED, job)
    assert "ermissions" not in processes.logs()


async def test_a_worker_without_permission_for_its_inbox_logs_it(restricted):
    needs_typescript()
    await restricted.world.dispatcher()
    await restricted.processes.node(
        str(typescript.WORKER_UNDER_TEST),
        WORKER_NAME="ts-2",
        HEADWAY_NATS_URL=restricted.url_of("ts-2"),
    )

    async def logged() -> bool:
        log = restricted.processes.logs()
        return "job ts-echo: cannot fetch orders" in log and "ermissions" in log

    await until(logged, within=30, what="the worker logs that it cannot fetch")


def needs_typescript() -> None:
    why = typescript.missing()
    if why:
        pytest.skip(why)
    typescript.build()
