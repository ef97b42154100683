"""pgqueuer: jobs and their log in PostgreSQL."""

import json
from datetime import timedelta

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.queries import Queries
from recorder import POSTGRES, record


async def connect():
    return Queries(AsyncpgDriver(await asyncpg.connect(POSTGRES)))


async def setup():
    await (await connect()).install()


async def enqueue(queries, jobs):
    inputs = [json.dumps(job).encode() for job in jobs]
    await queries.enqueue(["nothing"] * len(jobs), inputs, [0] * len(jobs))


async def send(queries, job):
    await queries.enqueue("nothing", json.dumps(job).encode(), 0)


async def pending(queries):
    return (await queries.driver.fetch("SELECT count(*) AS number FROM pgqueuer"))[0]["number"]


async def worker():
    pool = await asyncpg.create_pool(POSTGRES, min_size=2, max_size=10)
    queue = PgQueuer(AsyncpgPoolDriver(pool))

    @queue.entrypoint("nothing")
    async def nothing(job):
        record(json.loads(job.payload)["sent"])

    await queue.run(batch_size=300, dequeue_timeout=timedelta(seconds=5))
