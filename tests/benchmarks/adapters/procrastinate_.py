"""procrastinate: jobs and their events in PostgreSQL, rows in their final state when done."""

import procrastinate
from recorder import POSTGRES, record

SLOTS = 20
connector = procrastinate.PsycopgConnector(conninfo=POSTGRES, min_size=2, max_size=SLOTS + 2)
app = procrastinate.App(connector=connector)


@app.task(name="nothing", pass_context=False)
async def nothing(number, sent, pad):
    record(sent)


async def connect():
    await app.open_async()
    return app


async def setup():
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


async def enqueue(_, jobs):
    await nothing.batch_defer_async(*jobs)


async def send(_, job):
    await nothing.defer_async(**job)


async def pending(opened):
    query = "SELECT count(*) AS number FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"
    return (await opened.connector.execute_query_one_async(query))["number"]


async def worker():
    async with app.open_async():
        await app.run_worker_async(concurrency=SLOTS, fetch_job_polling_interval=5)
