"""Headway's workloads; each starts servers and services of its own and returns figures."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path

from headway import once
from headway_cli.bench import command as scenarios
from headway_cli.bench.servers import Bench, queries
from headway_cli.serve.running import PartEnded
from headway_clock import monotonic, utc_now
from headway_contract import subjects
from headway_contract.worker_protocol import Heartbeat, HeartbeatReply
from headway_dispatcher.public import verify
from headway_jetstream_kit import Broker
from headway_jetstream_kit.ask import ask
from support import filled

from benchmarks import scheduling

MANIFESTS = 10_000
WORKERS = 1_000
HEARTBEAT_SECONDS = 3.0
IDLE_SECONDS = 20
FILL_SECONDS = 3600.0
UP_SECONDS = 60.0
SLEEPING, SLEEP_SECONDS = 5_000, 0.02

APP = """
from pathlib import Path
from headway import App, every
app = App("first")
@app.job("first")
@every(seconds=1)
async def first(ctx):
    Path(__file__).with_name("fired").touch()
"""


@asynccontextmanager
async def running(folder: Path | None = None, *, workers: int = 1) -> AsyncIterator[Bench]:
    """Start servers, scheduler and dispatcher, in a new folder unless one is named."""
    async with AsyncExitStack() as stack:
        if folder is None:
            temporary = tempfile.TemporaryDirectory(prefix="headway-bench-")
            folder = Path(stack.enter_context(temporary))
        bench = Bench(stack, folder, workers=workers)
        await bench.start()
        yield bench


class Headway:
    """The workloads that Headway shares with its peers."""

    async def drain(self, work: int, workers: int, folder: Path | None = None) -> dict[str, float]:
        """Enqueue in bulk, drain, and verify the history of it; the cost of a run is by one worker."""
        async with running(folder, workers=workers) as bench:
            enqueued = await scenarios.enqueue(bench, work)
            drained = await scenarios.drain(bench, work)
            if workers > 1:
                return {"drain_two": work / drained["seconds"]}
            cost = drained["cost_each"]
            figures = {
                "drain": work / drained["seconds"],
                "enqueue": enqueued["together_per_second"],
                "run_processor_us": sum(cost["processor_ms"].values()) * 1000,
                "run_messages": cost["messages_in"] + cost["messages_out"],
            }
            for name in ("statements", "row_operations", "wal_bytes"):
                figures[f"run_{name}"] = cost[name]
            if folder is None:
                verified = await verify(bench.database)
                if verified.differing:
                    raise PartEnded(f"history and tables differ: {verified.differences[:3]}")
                figures["verify"] = verified.events / verified.seconds
            return figures

    async def latency(self) -> dict[str, float]:
        """Trigger one manifest after the other on an idle system."""
        async with running() as bench:
            found = await scenarios.latency(bench, 200)
            return {f"latency_{name}": value for name, value in found["to_start_ms"].items()}


async def sleeping() -> dict[str, float]:
    """Drain jobs of 20 ms by one worker and by two, of which each has 50 slots."""
    figures = {}
    for workers, name in ((1, "sleeping"), (2, "sleeping_two")):
        async with running(workers=workers) as bench:
            async with bench.database.acquire() as connection:
                await connection.execute(
                    "SELECT headway.enqueue('sleep', to_jsonb($1::float)) FROM generate_series(1, $2)",
                    SLEEP_SECONDS,
                    SLEEPING,
                )
            await bench.until(lambda: bench.value(queries["is_queued"], SLEEPING), "the queue")
            drained = await scenarios.drain(bench, SLEEPING)
            figures[name] = SLEEPING / drained["seconds"]
    return figures


async def burst() -> dict[str, float]:
    """Let 10,000 schedules be due in the same second, until the last body starts."""
    async with running() as bench:
        return {"burst": (await scenarios.burst(bench, MANIFESTS))["to_start_seconds"]["last"]}


async def growth(work: int, finished: int, folder: Path) -> dict[str, float]:
    """Drain an empty system, then one with finished runs in its tables, which the folder keeps."""
    async with running(folder) as bench:
        if not await bench.value("SELECT EXISTS (SELECT FROM dispatcher.run)"):
            await _fill(bench, finished)
    empty = await Headway().drain(work, 1)
    full = await Headway().drain(work, 1, folder)
    return {f"growth_{finished}": full["drain"] / empty["drain"]}


async def _fill(bench: Bench, finished: int) -> None:
    """Write finished runs of the last thirty days, with their leases and history."""
    now = utc_now()
    spread = (filled.MANIFESTS, filled.GROUPS)
    steps = (
        ("works", finished, *spread, now),
        ("leases", finished, now),
        ("runs", finished, *spread, now),
        ("days", now),
        ("history", finished, now),
    )
    async with bench.database.acquire() as connection:
        await connection.execute("SET statement_timeout = 0")
        for name, *arguments in steps:
            await connection.execute(filled._QUERIES[name], *arguments, timeout=FILL_SECONDS)
        for statement in ("VACUUM ANALYZE", "CHECKPOINT"):
            await connection.execute(statement, timeout=FILL_SECONDS)


async def tick() -> dict[str, float]:
    """Compare a tick among a million manifests with one among 10,000."""
    found = await scheduling.measure_ticks([10_000, 1_000_000])
    return {"tick": found["ratio_largest_to_smallest"]}


async def up() -> dict[str, float]:
    """Start `headway up` in an empty folder, until the first body of a job runs."""
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as temporary:
        folder = Path(temporary)
        (folder / "app.py").write_text(APP)
        environment = {name: value for name, value in os.environ.items() if "HEADWAY" not in name}
        began = monotonic()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "headway_cli", "up", "app.py", "--data", "data"),
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(UP_SECONDS):
                while not (folder / "fired").exists():
                    await asyncio.sleep(0.005)
            return {"up": monotonic() - began}
        finally:
            process.send_signal(signal.SIGTERM)
            await process.wait()


async def idle() -> dict[str, float]:
    """Do nothing for a while with 10,000 manifests and a worker."""
    async with running() as bench:
        await bench.start_workers()
        when = once((utc_now() + timedelta(days=365)).replace(tzinfo=None), tz="UTC")
        await bench.client.schedule_many(
            "idle", job="nothing", items=range(MANIFESTS), key=str, when=when
        )
        return await _measure_idle(bench, "idle")


async def workers() -> dict[str, float]:
    """Receive the heartbeats of 1,000 idle workers, spread over their interval."""
    async with running() as bench:
        broker = await Broker.connect(bench.nats_url, name="headway-bench-workers")

        async def beat(number: int) -> None:
            await asyncio.sleep(HEARTBEAT_SECONDS * number / WORKERS)
            heartbeat = Heartbeat(worker=f"w-{number}", nonce="n", jobs=["nothing"], slots=1)
            while True:
                sent = monotonic()
                terms = (broker, subjects.HEARTBEAT, heartbeat, HeartbeatReply)
                await ask(*terms, timeout=HEARTBEAT_SECONDS)
                await asyncio.sleep(HEARTBEAT_SECONDS - (monotonic() - sent))

        beating = asyncio.gather(*(beat(number) for number in range(WORKERS)))
        try:
            await bench.until(lambda: _all_heard(bench), "the heartbeats of all workers")
            found = await _measure_idle(bench, "workers")
            if beating.done():
                await beating
            return found
        finally:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)
            await broker.close()


async def _all_heard(bench: Bench) -> bool:
    return await bench.value("SELECT count(*) >= $1 FROM dispatcher.worker", WORKERS)


async def _measure_idle(bench: Bench, name: str) -> dict[str, float]:
    figures: dict = {}
    async with bench.measuring(figures, work=IDLE_SECONDS):
        await asyncio.sleep(IDLE_SECONDS)
    cost = figures["cost_each"]
    return {
        # A thousand milliseconds a second are all of a core.
        f"{name}_processor": sum(cost["processor_ms"].values()) / 10,
        f"{name}_statements": cost["statements"],
    }
