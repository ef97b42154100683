"""Short jobs, from declaration to outcome: runs share leases."""

from headway import App
from headway_contract import subjects
from headway_jetstream_kit.provisioning import stream_info
from support.healing import stored_outcomes
from support.invariants import check_invariants
from support.work_events import queue

SHARED = """
    SELECT count(DISTINCT lease_id) AS leases, count(*) AS runs FROM dispatcher.run
    WHERE state = 'completed'
"""


async def test_runs_of_a_short_job_share_leases_by_the_gate(world):
    app = App("test")
    done: list[int] = []

    @app.job("job", group="ops", batch=10)
    async def job(ctx, number: int):
        done.append(number)
        return number

    await world.dispatcher()
    await world.scheduler(app)
    await world.until("SELECT batch = 10 FROM dispatcher.job_limit WHERE name = 'job'")
    for number in range(40):
        await queue(world, input=number)
    await world.until("SELECT count(*) = 40 FROM dispatcher.work_queue")
    await world.worker(app, worker_slots=2)
    await world.until("SELECT count(*) = 40 FROM dispatcher.work_queue WHERE state = 'settled'")
    [row] = await world.rows(SHARED)
    assert (row["runs"], sorted(done)) == (40, list(range(40)))
    assert row["leases"] <= 8
    # Outcomes of runs that end together share messages.
    await world.until("SELECT NOT EXISTS (SELECT FROM dispatcher.outbox)")
    outcomes = await stored_outcomes(world)
    assert len({outcome.work for outcome in outcomes}) == len(outcomes) == 40
    assert (await stream_info(world.broker, subjects.SETTLED_STREAM))["state"]["messages"] < 40
    await check_invariants(world.database)
