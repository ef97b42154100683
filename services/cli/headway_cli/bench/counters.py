"""Counters of processes and servers: CPU time, statements, messages."""

import asyncio
import contextlib
import urllib.request
from collections.abc import Mapping

import msgspec
import psutil
from headway_postgres_kit import Database, Queries
from msgspec import Struct

_queries = Queries("headway_cli", "sql/bench.sql")
# PostgreSQL's sessions report their counts once a second.
_COUNT_DELAY_SECONDS = 1.2


class _Traffic(Struct, frozen=True):
    in_msgs: int
    out_msgs: int


class Reading(Struct, frozen=True, kw_only=True):
    """All counters at one moment."""

    processor_seconds: dict[str, float]
    processor_seconds_after: dict[str, float]
    statements: int
    row_operations: int
    commits: int
    messages_in: int
    messages_out: int


class Cost(Struct, frozen=True, kw_only=True):
    """The difference of two readings, for each run."""

    processor_ms: dict[str, float]
    statements: float
    row_operations: float
    commits: float
    messages_in: float
    messages_out: float


class Counters:
    """Reads the counters of the servers and of named processes."""

    def __init__(self, database: Database, monitor_url: str, processes: Mapping[str, int]) -> None:
        self._database = database
        self._monitor_url = monitor_url
        self._processes = {name: (pid, 0.0) for name, pid in processes.items()}

    def watch(self, name: str, pid: int) -> None:
        """Count the CPU time of a process from now on."""
        self._processes[name] = (pid, _processor_seconds(pid))

    async def read(self) -> Reading:
        """Read all counters, after the servers have updated theirs."""
        used = self._processor_seconds()
        await asyncio.sleep(_COUNT_DELAY_SECONDS)
        async with self._database.acquire() as connection:
            row = await connection.fetchrow(_queries["counters"])
        assert row is not None  # noqa: S101 - a select of aggregates has one row
        traffic = await asyncio.to_thread(self._traffic)
        return Reading(
            processor_seconds=used,
            processor_seconds_after=self._processor_seconds(),
            statements=row["statements"],
            row_operations=row["row_operations"],
            commits=row["commits"],
            messages_in=traffic.in_msgs,
            messages_out=traffic.out_msgs,
        )

    def _processor_seconds(self) -> dict[str, float]:
        return {
            name: _processor_seconds(pid) - offset
            for name, (pid, offset) in self._processes.items()
        }

    def _traffic(self) -> _Traffic:
        with urllib.request.urlopen(f"{self._monitor_url}/varz") as answer:  # noqa: S310 - loopback
            return msgspec.json.decode(answer.read(), type=_Traffic)


def cost(before: Reading, after: Reading, *, runs: int) -> Cost:
    """Compute the cost of each run, without the delays of the readings themselves."""
    used = {
        name: seconds - before.processor_seconds_after.get(name, 0.0)
        for name, seconds in after.processor_seconds.items()
    }
    return Cost(
        processor_ms={name: round(seconds * 1000 / runs, 3) for name, seconds in used.items()},
        statements=round((after.statements - before.statements) / runs, 2),
        row_operations=round((after.row_operations - before.row_operations) / runs, 2),
        commits=round((after.commits - before.commits) / runs, 2),
        messages_in=round((after.messages_in - before.messages_in) / runs, 2),
        messages_out=round((after.messages_out - before.messages_out) / runs, 2),
    )


def _processor_seconds(pid: int) -> float:
    """Read the CPU time of a process and its descendants, living or gone."""
    root = psutil.Process(pid)
    total = 0.0
    for process in (root, *root.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
            # The times of ended processes are added to their parents.
            total += getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return total
