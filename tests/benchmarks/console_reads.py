"""Measure the cost of the console's lists on an embedded PostgreSQL.

    ./justw bench console_reads --runs 1m

Fills the tables with so many runs (100k unless told) over thirty days, a hundred thousand of them
in the last one where there are that many, and prints one JSON document: the median and the 95th
percentile of each list in milliseconds, and which of them take longer than 50.
"""

import json
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvloop
from headway_cli.serve.services import apply_migrations
from headway_clock import monotonic, utc_now
from headway_console import reading
from headway_embedded import PostgresServer
from headway_postgres_kit import Connection, Database

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.filled import fill
from support.readings import readings

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


async def bench(url: str, runs: int) -> dict[str, Any]:
    """Fill the tables and read them."""
    database = await Database.connect(url, name="bench", answer_seconds=600)
    now = utc_now()
    began = monotonic()
    try:
        await apply_migrations(database)
        await fill(database, runs, now=now)
    finally:
        await database.close()
    filled = monotonic() - began
    reader = await reading.connect_reader(url)
    try:
        async with reader.acquire() as connection:
            figures = {name: await measure(connection, ask) for name, ask in readings(now).items()}
    finally:
        await reader.close()
    slow = [name for name, figure in figures.items() if figure["p95"] > ENOUGH_MS]
    return {"runs": runs, "filled_s": round(filled, 1), "ms": figures, "over_50_ms": slow}


def _count(given: list[str]) -> int:
    """`--runs 1m`, `--runs 50k` or a number."""
    if "--runs" not in given:
        return 100_000
    text = given[given.index("--runs") + 1].lower()
    factor = {"k": 1_000, "m": 1_000_000}.get(text[-1], 1)
    return int(text.rstrip("km")) * factor


async def main() -> None:
    """Run it on a server of its own."""
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as folder:
        server = PostgresServer(Path(folder))
        await server.start()
        try:
            figures = await bench(server.url, _count(sys.argv[1:]))
        finally:
            await server.stop()
    sys.stdout.write(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    uvloop.run(main())
