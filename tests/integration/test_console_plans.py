"""Query plans: a list of the console reads few rows, whatever the size of the tables."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from headway_clock import utc_now
from headway_console import reading
from headway_console.reading import connect_reader
from support import readings as readings_of
from support.filled import fill
from support.plans import outline, rows_read, scans_of
from support.readings import readings

pytestmark = pytest.mark.breaks_tables("fills tables by hand")

RUNS = 20_000
# Tables that grow with time.
GROWING = ("metadata", "work_queue", "lease", "occurrence", "run_log")

# The rows of tables and indexes that the statements of a list may read, of about 200,000: its page,
# the rows joined to it, and the few groups, manifests and workers.
PAGE = 4_000
MORE = {
    # Waiting work, 3,000 rows here, is counted and searched in full.
    "groups": 10_000,
    "work: counted by reason": 10_000,
    "work: counted by group and reason": 10_000,
    "work: by reason": 20_000,
    "work: by reason (none)": 20_000,
    "work: of a group": 8_000,
    "overview": 15_000,
    # A search reads a limited number of rows, each with its work, and then reports its position.
    "runs: of a worker": 21_000,
    "runs: of a worker (none)": 21_000,
    "runs: text in input (none)": 13_000,
    "runs: text anywhere": 13_000,
    "runs: text anywhere (none)": 13_000,
    "work: settled (none)": 41_000,
    "work: text": 17_000,
    "work: text (none)": 17_000,
    "work: text of a group (none)": 8_000,
    "work: settled, text (none)": 9_000,
    "events: of a type": 12_000,
    "events: of a type (none)": 22_000,
    "events: of a job": 12_000,
    "events: of a group": 12_000,
    "events: of a manifest": 32_000,
    "events: refused (none)": 22_000,
    "work: settled of a manifest": 41_000,
    "audit: by an actor": 11_000,
    "audit: by an actor (none)": 21_000,
}


class Explaining:
    """A connection that runs each query and records its plan."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.plans: list[dict[str, Any]] = []

    async def fetch(self, query: str, *arguments: Any) -> Any:
        text = await self._connection.fetchval(
            f"EXPLAIN (ANALYZE, FORMAT JSON) {query}", *arguments
        )
        self.plans.append(json.loads(text)[0]["Plan"])
        return await self._connection.fetch(query, *arguments)

    async def fetchrow(self, query: str, *arguments: Any) -> Any:
        rows = await self.fetch(query, *arguments)
        return rows[0] if rows else None

    async def fetchval(self, query: str, *arguments: Any) -> Any:
        row = await self.fetchrow(query, *arguments)
        return None if row is None else row[0]


async def test_a_list_reads_few_rows_beyond_its_page(database, database_url):
    now = utc_now()
    await fill(database, RUNS, now=now, letters=500, queued=3_000)
    reader = await connect_reader(database_url)
    too_much = []
    async with reader.acquire() as connection:
        for name, ask in readings(now).items():
            explaining = Explaining(connection)
            await ask(explaining)
            assert explaining.plans, name
            read = sum(rows_read(plan) for plan in explaining.plans)
            whole = [
                outline(plan)
                for plan in explaining.plans
                for table in GROWING
                if "Seq Scan" in scans_of(plan, table)
            ]
            if read > MORE.get(name, PAGE) or whole:
                plans = "\n".join(outline(plan) for plan in explaining.plans)
                too_much.append(f"{name} reads {read} rows:\n{plans}")
            # The number of round trips does not depend on the number of entries.
            assert len(explaining.plans) < 30, name
    await reader.close()
    assert not too_much, "\n\n".join(too_much)


def test_every_reading_function_has_a_plan_test():
    """Every reading function is listed in the readings."""
    held = Path(readings_of.__file__).read_text() + "new_numbers read_events"
    folder = Path(reading.__file__).parent
    unlisted = {
        f"{path.stem}.{name}"
        for path in folder.glob("*.py")
        for name in re.findall(r"^async def ([a-z]\w*)", path.read_text(), re.MULTILINE)
        if name != "connect_reader" and not re.search(rf"\b{name}\b", held)
    }
    assert unlisted == set()
