"""oban-py: jobs in PostgreSQL, rows in their final state when done."""

import asyncio

from oban import Oban
from oban import worker as oban_worker
from oban.schema import install
from recorder import POSTGRES, record


@oban_worker(queue="default")
class Nothing:
    async def process(self, job):
        record(job.args["sent"])


async def connect():
    return await Oban(pool=await Oban.create_pool(POSTGRES, min_size=1, max_size=10)).start()


async def setup():
    await install(await Oban.create_pool(POSTGRES, min_size=1, max_size=2))


async def enqueue(oban, jobs):
    await oban.enqueue_many([Nothing.new(job) for job in jobs])


async def send(oban, job):
    await oban.enqueue(Nothing.new(job))


async def pending(oban):
    async with oban._query._pool.connection() as connection:
        rows = await connection.execute("SELECT count(*) FROM oban_jobs WHERE state <> 'completed'")
        return (await rows.fetchone())[0]


async def worker():
    pool = await Oban.create_pool(POSTGRES, min_size=2, max_size=10)
    async with Oban(pool=pool, queues={"default": 1000}):
        await asyncio.Event().wait()
