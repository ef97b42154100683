"""A client reads work, runs, workers and occupancy."""

import asyncio
from uuid import UUID, uuid4

import pytest
from headway import App
from headway.client.client import RequestFailed
from headway_dispatcher.store import letter_queries
from support.cadences import when_made_due
from support.invariants import check_invariants


def app_with(body, names=("m0", "m1", "m2"), **options) -> App:
    app = App("test")
    app.job("job", group="ops", **options)(body)
    for name in names:
        app.schedule(name, job="job", when=when_made_due(), input={"name": name})
    return app


async def test_work_runs_and_workers_are_read(world, client, nats_url):
    release = asyncio.Event()

    async def job(ctx, given: dict):
        await release.wait()
        if given["name"] == "m0":
            raise ValueError("boom")
        return given["name"]

    app = app_with(job)
    await world.dispatcher(max_active=2)
    await world.worker(app, worker_name="w1", worker_slots=4)
    await world.fire(app)
    await world.until("SELECT count(*) = 2 FROM dispatcher.run WHERE state = 'in_progress'")
    await world.until("SELECT reason = 'global_cap' FROM dispatcher.waiting")
    found = await client.works()
    assert len(found) == 3
    assert {work.state for work in found} == {"queued", "dispatched"}
    [waiting] = await client.works(state="queued", group="ops", job="job")
    assert waiting.wait_reason == "global_cap"
    assert [work.work for work in await client.works(reason="global_cap")] == [waiting.work]
    assert [work.work for work in await client.works(manifest=waiting.manifest)] == [waiting.work]
    assert await client.works(group="nobody") == []
    [worker] = await client.workers()
    assert (worker.worker, worker.alive, worker.slots, worker.jobs) == ("w1", True, 4, ["job"])
    running = {run.run for run in await client.runs(state="in_progress")}
    assert set(worker.runs) == running
    [room] = await client.occupancy()
    assert (room.group, room.in_progress, room.waiting) == ("ops", 2, {"global_cap": 1})
    release.set()
    await world.until("SELECT count(*) = 2 FROM dispatcher.work_queue WHERE state = 'settled'")
    settled = await client.works(state="settled", reason="completed")
    assert {work.outcome for work in settled} == {"completed"}
    [run] = await client.runs(manifest="m1")
    full = await client.run(run.run)
    assert (full.output, full.input, full.status.state) == ("m1", {"name": "m1"}, "completed")
    await world.until("SELECT count(*) FROM dispatcher.run WHERE state = 'failed'")
    [failed] = await client.runs(state="failed", job="job", worker="w1")
    details = await client.run(failed.run)
    assert (details.failure.kind, failed.failure_message) == ("ValueError", "boom")
    work = await client.work(failed.run)
    assert (work.status.work, work.status.manifest) == (failed.work, "m0")
    assert [run.run for run in work.runs] == [failed.run]
    assert [run.run for run in await client.runs(work=failed.work)] == [failed.run]
    assert await client.runs(work=failed.work, job="another") == []
    for ask in (client.work, client.run, client.dead_letter):
        with pytest.raises(RequestFailed, match="no"):
            await ask(uuid4())
    await check_invariants(world.database)


async def test_pages_follow_each_other_without_gap_or_repeat(world, client, console):
    async def job(ctx, given: dict): ...

    names = tuple(f"m{number}" for number in range(7))
    await world.dispatcher()
    await world.fire(app_with(job, names))
    await world.until("SELECT count(*) = 7 FROM dispatcher.work_queue")
    async with console.signed_in("viewer") as browser:
        seen, cursor = [], {}
        while True:
            reply = await browser.get("/api/v1/work", params={"limit": 3, **cursor})
            page = reply.json()
            seen += [UUID(item["work"]) for item in page["items"]]
            if page["next"] is None:
                break
            cursor = {"cursor": page["next"]}
        bad = await browser.get("/api/v1/work", params={"cursor": "yesterday"})
        assert (bad.status_code, "invalid cursor" in bad.text) == (422, True)
    assert len(seen) == len(set(seen)) == 7
    assert [work.work for work in await client.works()] == seen
    assert [work.work for work in await client.works(most=2)] == seen[:2]


FILL = """
INSERT INTO dispatcher.group_limit (name) SELECT 'g' || n FROM generate_series(0, 9) n;
INSERT INTO dispatcher.work_queue
    (id, round, manifest_id, manifest, slot, group_name, job, cause, queued_at, priority, rank,
     not_before, terms, state, outcome,
     settled_at, received_at, wait_reason)
SELECT gen_random_uuid(), 1, gen_random_uuid(), 'm' || n, 0, 'g' || n % 10, 'j' || n % 100, 'x',
       t, 0, t, t, '{}', CASE WHEN n % 100 = 0 THEN 'queued' ELSE 'settled' END,
       CASE WHEN n % 100 <> 0 THEN 'completed' END, CASE WHEN n % 100 <> 0 THEN t END, t,
       CASE WHEN n % 100 = 0 THEN 'x' END
FROM generate_series(1, 20000) n, LATERAL (SELECT now() - n * interval '1 s' AS t) AS times;
INSERT INTO dispatcher.lease (id, token, job, created_at, ended_at)
SELECT '00000000-0000-0000-0000-000000000001', 't', 'j', now(), now();
INSERT INTO dispatcher.metadata
    (run_id, work_id, lease_id, manifest_id, group_name, job, round, attempt, state, created_at,
     finished_at, max_run_seconds)
SELECT gen_random_uuid(), id, '00000000-0000-0000-0000-000000000001', manifest_id, group_name, job,
       1, 1, 'completed', queued_at, queued_at, 1
FROM dispatcher.work_queue WHERE state = 'settled';
INSERT INTO dispatcher.dead_letter
    (id, work_id, round, manifest_id, manifest, group_name, job, reason, failure, attempts, state,
     created_at, resolved_at, fingerprint)
SELECT gen_random_uuid(), id, 1, manifest_id, manifest, group_name, job, 'r', '{}', 1,
       CASE WHEN n % 50 = 0 THEN 'awaiting' ELSE 'acknowledged' END, queued_at,
       CASE WHEN n % 50 <> 0 THEN queued_at END, 'f' || n % 1000
FROM (SELECT *, row_number() OVER () AS n FROM dispatcher.work_queue WHERE state = 'settled') AS w;
ANALYZE;
"""


@pytest.mark.breaks_tables("fills tables by hand")
class TestPlans:
    @pytest.mark.thorough
    async def test_settling_finds_waiting_letters_by_an_index(self, database):
        async with database.acquire() as connection:
            await connection.execute(FILL)
            rows = await connection.fetch(
                f"EXPLAIN {letter_queries['lock_waiting']}", [uuid4()], 10
            )
        plan = "\n".join(row[0] for row in rows)
        assert "dead_letter_retry_requested" in plan, plan
