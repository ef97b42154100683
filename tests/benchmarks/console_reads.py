"""Measure the cost of the console's lists on an embedded PostgreSQL.

    ./justw bench console_reads --runs 1m

Fills the tables with so many runs (100k unless told) over thirty days, a hundred thousand of them
in the last one where there are that many, and prints one JSON document: the median and the 95th
percentile of each list in milliseconds, and which of them take longer than 50.
"""

import argparse
import statistics
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from headway_clock import monotonic, utc_now
from headway_console import reading
from headway_postgres_kit import Connection
from support.filled import fill
from support.readings import readings

from benchmarks.database import empty_database, print_figures, read_size

ENOUGH_MS = 50.0
_TIMES = 30


async def measure(
    connection: Connection, ask: Callable[[Connection], Awaitable[Any]]
) -> dict[str, float]:
    """How long a list takes, in milliseconds, and what of that is the server's own computing.

    The latter says more on a machine that is busy with other things.
    """
    await ask(connection)
    backend = await connection.fetchval("SELECT pg_backend_pid()")
    spent, computing = [], _computed(backend)
    for _ in range(_TIMES):
        began = monotonic()
        await ask(connection)
        spent.append((monotonic() - began) * 1000)
    return {
        "p50": round(statistics.median(spent), 1),
        "p95": round(statistics.quantiles(spent, n=20)[-1], 1),
        "server_cpu": round((_computed(backend) - computing) / _TIMES, 1),
    }


def _computed(process: int) -> float:
    """Return the processor time of a process in milliseconds, 0 if the system does not say."""
    statistics = Path(f"/proc/{process}/schedstat")
    return int(statistics.read_text().split()[0]) / 1e6 if statistics.exists() else 0.0


async def bench(runs: int) -> dict[str, Any]:
    """Fill the tables and read them."""
    now = utc_now()
    async with empty_database() as (database, url):
        began = monotonic()
        await fill(database, runs, now=now)
        filled = monotonic() - began
        reader = await reading.connect_reader(url)
        try:
            async with reader.acquire() as connection:
                figures = {
                    name: await measure(connection, ask) for name, ask in readings(now).items()
                }
        finally:
            await reader.close()
    slow = [name for name, figure in figures.items() if figure["p95"] > ENOUGH_MS]
    return {"runs": runs, "filled_s": round(filled, 1), "ms": figures, "over_50_ms": slow}


def main() -> None:
    """Read the number of runs and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=read_size, default=100_000)
    print_figures(bench(parser.parse_args().runs))
