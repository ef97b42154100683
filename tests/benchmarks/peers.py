"""Other queues, each in an environment of its own, measured as Headway is."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import struct
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from headway_clock import monotonic
from headway_embedded import NatsServer, PostgresServer

from benchmarks.targets import quantile

ROOT = Path(__file__).parents[2]
ADAPTERS = Path(__file__).parent / "adapters"
ENVIRONMENTS = ROOT / ".tools" / "bench-peers"
WITHIN_SECONDS = 600.0
SINGLES, SINGLES_PER_SECOND = 200, 20
# The size of an entry of adapters.recorder.
_ENTRY = struct.calcsize("dd")


class PeerFailed(Exception):
    """A process of a peer has failed or takes too long."""


@dataclass(frozen=True)
class Peer:
    """A queue: its adapter, its packages, and the Python that it needs."""

    adapter: str
    packages: tuple[str, ...]
    python: str = "3.11"

    @property
    def program(self) -> Path:
        return ENVIRONMENTS / self.adapter / "bin" / "python"

    def install(self) -> None:
        """Create the environment, unless it has these packages already."""
        folder = ENVIRONMENTS / self.adapter
        packages = [*self.packages, "uvloop==0.23.0"]
        installed = folder / "installed"
        if installed.exists() and installed.read_text().split() == packages:
            return
        uv = os.environ.get("UV", "uv")
        for command in (
            [uv, "venv", "--quiet", "--clear", "--python", self.python, folder],
            [uv, "pip", "install", "--quiet", "--python", self.program, *packages],
        ):
            done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
            if done.returncode:
                raise PeerFailed(f"cannot install {packages[0]}: {done.stderr.strip()[-400:]}")
        installed.write_text("\n".join(packages))

    async def drain(self, work: int, workers: int) -> dict[str, float]:
        """Enqueue in bulk, then drain; the rate counts from the first body until all is recorded."""
        async with session(self) as opened, AsyncExitStack() as stack:
            enqueued = await opened.call("produce", work)
            watcher = await stack.enter_async_context(opened.process("watch"))
            if await asyncio.wait_for(watcher.stdout.readline(), 30) != b'"ready"\n':
                raise PeerFailed("cannot connect to the queue")
            running = [
                await stack.enter_async_context(opened.process("worker")) for _ in range(workers)
            ]
            await opened.until_bodies(work, *running)
            watcher.stdin.write(b"\n")
            ended = json.loads(await asyncio.wait_for(watcher.stdout.readline(), WITHIN_SECONDS))
            rate = work / (ended - opened.recorded()[0][0])
            return (
                {"drain": rate, "enqueue": work / enqueued} if workers == 1 else {"drain_two": rate}
            )

    async def latency(self) -> dict[str, float]:
        """Send single jobs on an idle system, from just before the call until the body starts."""
        async with session(self) as opened, opened.process("worker") as worker:
            # A worker that has run something is up, and idle after that.
            for count in (1, SINGLES):
                await opened.call("trickle", count, SINGLES_PER_SECOND)
                await opened.until_bodies(count, worker)
            seconds = [started - sent for started, sent in opened.recorded()[1:]]
            shares = {"latency_p50": 0.5, "latency_p99": 0.99}
            return {name: quantile(seconds, share) * 1000 for name, share in shares.items()}


PEERS = {
    "pgqueuer": Peer("pgqueuer_", ("pgqueuer==1.6.0", "asyncpg==0.32.0")),
    "taskiq-nats": Peer(
        "taskiq_nats_",
        ("taskiq==0.13.0", "taskiq-nats==0.7.0", "nats-py==2.16.0", "orjson==3.13.0"),
    ),
    "oban-py": Peer("oban_", ("oban==0.7.0", "psycopg[binary,pool]==3.3.8"), python="3.12"),
    "chancy": Peer("chancy_", ("chancy==0.26.0", "psycopg[binary,pool]==3.3.8")),
    "procrastinate": Peer(
        "procrastinate_", ("procrastinate==3.10.0", "psycopg[binary,pool]==3.3.8")
    ),
}


class Session:
    """A peer on servers of its own; the bodies of its jobs write to `records`."""

    def __init__(self, peer: Peer, folder: Path, postgres: str, nats: str) -> None:
        self._peer = peer
        self._log = folder / "peer.log"
        # In memory, because a body writes there.
        memory = Path("/dev/shm")
        self.records = Path(
            tempfile.mkdtemp(prefix="headway-bench-", dir=memory if memory.is_dir() else None)
        )
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(ADAPTERS),
            "BENCH_POSTGRES": postgres,
            "BENCH_NATS": nats,
            "BENCH_RECORDS": str(self.records),
        }
        self._environment.pop("VIRTUAL_ENV", None)

    @asynccontextmanager
    async def process(self, *arguments: object) -> AsyncIterator[asyncio.subprocess.Process]:
        """Run a function of the adapter in a process group of its own, which ends with the block."""
        with self._log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *(self._peer.program, ADAPTERS / "run.py", self._peer.adapter),
                *map(str, arguments),
                env=self._environment,
                cwd=ADAPTERS,
                stdin=subprocess.PIPE,
                stdout=log if arguments[0] == "worker" else subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            for number in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), 3)

    async def call(self, *arguments: object) -> float | None:
        """Run a function to its end, and return its answer if it has one."""
        async with self.process(*arguments) as process, asyncio.timeout(WITHIN_SECONDS):
            output, _ = await process.communicate()
        if process.returncode:
            raise PeerFailed(f"{arguments} failed: {self._log.read_text()[-400:]}")
        return json.loads(output.splitlines()[-1]) if output.strip() else None

    def bodies(self) -> int:
        return sum(file.stat().st_size // _ENTRY for file in self.records.iterdir())

    def recorded(self) -> list[tuple[float, float]]:
        """Return when each body started and was sent, in order."""
        return sorted(
            entry
            for file in self.records.iterdir()
            for entry in struct.iter_unpack("dd", file.read_bytes())
        )

    async def until_bodies(self, count: int, *workers: asyncio.subprocess.Process) -> None:
        """Wait until so many bodies have started."""
        deadline = monotonic() + WITHIN_SECONDS
        while (bodies := self.bodies()) < count:
            if monotonic() > deadline or any(worker.returncode is not None for worker in workers):
                raise PeerFailed(f"{bodies} of {count} ran: {self._log.read_text()[-400:]}")
            await asyncio.sleep(0.01)


@asynccontextmanager
async def session(peer: Peer) -> AsyncIterator[Session]:
    """Start servers as Headway's benchmark does, and create the tables of the peer."""
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as folder:
        postgres, nats = PostgresServer(Path(folder)), NatsServer(Path(folder))
        try:
            await postgres.start()
            await nats.start()
            opened = Session(peer, Path(folder), postgres.url, nats.url)
            try:
                await opened.call("setup")
                yield opened
            finally:
                shutil.rmtree(opened.records)
        finally:
            await nats.stop()
            await postgres.stop()
