"""chancy: jobs in PostgreSQL, rows in their final state when done."""

import logging

from chancy import Chancy, Queue, Worker, job
from recorder import POSTGRES, record

log = logging.getLogger("chancy")
log.setLevel(logging.ERROR)


@job(queue="default")
async def nothing(*, number: int, sent: float, pad: str):
    record(sent)


def make():
    pool = {"min_connection_pool_size": 2, "max_connection_pool_size": 10}
    return Chancy(POSTGRES, log=log, plugins=[], **pool)


async def connect():
    chancy = make()
    await chancy.pool.open()
    return chancy


async def setup():
    eager = {"polling_interval": 1, "eager_polling": True}
    async with make() as chancy:
        await chancy.migrate()
        await chancy.declare(
            Queue("default", concurrency=50, executor=Chancy.Executor.Async, **eager)
        )


async def enqueue(chancy, jobs):
    async for _ in chancy.push_many([nothing.job.with_kwargs(**sent) for sent in jobs]):
        pass


async def send(chancy, sent):
    await chancy.push(nothing.job.with_kwargs(**sent))


async def pending(chancy):
    query = "SELECT count(*) FROM chancy_jobs WHERE state IN ('pending', 'running', 'retrying')"
    async with chancy.pool.connection() as connection:
        return (await (await connection.execute(query)).fetchone())[0]


async def worker():
    async with make() as chancy, Worker(chancy) as running:
        await running.wait_for_shutdown()
