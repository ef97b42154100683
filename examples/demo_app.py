"""A few realistic jobs: run them with `./justw demo`."""

import asyncio
import hashlib
import random

import msgspec
from headway import App, cron, every, retry

app = App("demo")
app.group("sync", max_active=3)


class Customer(msgspec.Struct):
    id: int
    name: str


@app.job("heartbeat-check", group="ops", description="Looks whether the site answers.")
@every(seconds=2)
async def heartbeat_check(ctx):
    await asyncio.sleep(0.05)
    return {"status": "ok"}


@app.job("nightly-cleanup", group="ops", description="Vacuums stale rows.")
@cron("15 3 * * *", tz="Europe/Berlin")
@retry(attempts=3, interval=60)
async def nightly_cleanup(ctx):
    await asyncio.sleep(1)


@app.job("sync-customer", group="sync", description="Pulls one customer from the CRM.")
async def sync_customer(ctx, customer: Customer):
    await asyncio.sleep(0.1)
    return {"customer": customer.id, "changes": random.randint(0, 5)}


@app.job("flaky-report", group="reports", description="Fails now and then, and is tried again.")
@every(seconds=5)
@retry(attempts=5, interval=0.5, backoff=1.5)
async def flaky_report(ctx):
    if ctx.attempt == 1 and random.random() < 0.5:
        raise ConnectionError("the report server hung up")
    await asyncio.sleep(0.2)


@app.job("thumbnail", group="media", description="A plain function: it runs in a thread.")
@cron("*/3 * * * * *")
def thumbnail(ctx):
    digest = hashlib.sha256()
    for _ in range(200):
        if ctx.cancelled:
            return None
        digest.update(b"pixels" * 1000)
    return {"sha256": digest.hexdigest()}


app.schedule_many(
    "sync",
    job=sync_customer,
    items=[
        Customer(id=number, name=name)
        for number, name in enumerate(["Ada", "Grace", "Edsger", "Barbara"], start=1)
    ],
    key=lambda customer: customer.name.lower(),
    when=every(seconds=4),
)
