"""Readings of the overview's chart, of jobs, groups and workers, of the map and of the search."""

from datetime import timedelta
from statistics import quantiles

import pytest
from headway import App, daily
from headway_clock import utc_now
from headway_console.reading import applications, manifests, search, system
from headway_console.reading.runs import RunFilter, page_of_runs
from support.filled import fill
from support.readings import named

RUNS = 5_000
HOUR = timedelta(hours=1)


@pytest.mark.breaks_tables("fills tables by hand")
async def test_figures_equal_the_runs_behind_them(database):
    now = utc_now()
    await fill(database, RUNS, now=now, letters=10, queued=10)
    async with database.acquire() as connection:
        until = system.end_of_slot(now + timedelta(minutes=1), HOUR)
        slots = await system.read_throughput(connection, until=until, width=HOUR, slots=24 * 31)
        assert sum(slot.completed + slot.failed + slot.cancelled for slot in slots) == RUNS
        for slot in slots[-100::10]:
            between = RunFilter(ended_since=slot.at, ended_before=slot.at + HOUR)
            states = [
                run.state for run in (await page_of_runs(connection, between, limit=1000)).items
            ]
            assert states.count("completed") == slot.completed
            assert states.count("failed") == slot.failed
            assert len(states) == slot.completed + slot.failed + slot.cancelled

        figures = await applications.read_job_figures(connection, ["job-00", "none"], among=200)
        runs = await page_of_runs(connection, RunFilter(job="job-00"), limit=500)
        ended = [run for run in runs.items if run.finished_at][:200]
        assert figures["none"].ended == 0
        assert figures["job-00"].ended == len(ended)
        assert figures["job-00"].failed == [run.state for run in ended].count("failed")
        took = [
            (run.finished_at - run.started_at).total_seconds()
            for run in ended
            if run.state == "completed" and run.finished_at and run.started_at
        ]
        percentiles = quantiles(took, n=20, method="inclusive")
        assert figures["job-00"].p50 == pytest.approx(percentiles[9])
        assert figures["job-00"].p95 == pytest.approx(percentiles[18])

        names = {match.name for match in await search.search(connection, "manifest 00017")}
        assert names == {"manifest-00017"}
        run = named("run 1000")
        for text in (str(run)[:13], run.hex[:9].upper()):
            found = await search.search(connection, text)
            assert search.Match(kind="run", name=str(run)) in found
        assert await search.search(connection, "100%_nothing\\\x00") == []


async def test_the_map_has_every_tree_with_the_depth_of_each_manifest(world):
    app = App("map")

    @app.job("step")
    async def step(ctx): ...

    for root in ("alone", "short", "long"):
        app.schedule(root, job=step, when=daily("02:30"))
    app.manifest("short").then("short-1", job=step)
    app.manifest("long").then("long-1", job=step).then("a-long-2", job=step)
    app.manifest("long").then("long-3", job=step)
    await world.declare(app)
    async with world.database.acquire() as connection:
        trees = await manifests.list_connected(connection)
        assert [[(node.external_id, node.depth) for node in tree] for tree in trees] == [
            [("long", 0), ("long-1", 1), ("long-3", 1), ("a-long-2", 2)],
            [("short", 0), ("short-1", 1)],
        ]
        assert await applications.list_jobs_of_group(connection, "step") == {"step": 7}
