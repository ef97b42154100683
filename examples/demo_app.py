"""A small shop with examples for every page of the console: `./justw demo`.

Most jobs fire every few seconds, so that there is history at once. On purpose, some work fails
for good, some waits for ever, and one job makes changes as an operator does.
"""

import asyncio
import hashlib
import os
import random
from datetime import UTC, datetime

import msgspec
from headway import (
    App,
    Client,
    Fatal,
    cron,
    daily,
    every,
    exclude_dates,
    manual,
    monthly,
    retry,
    spaced,
    weekly,
)

app = App("demo")
app.group("sync", max_active=2)  # five customers, two at a time: the others wait for room
app.group("mail", rate="6/minute")
app.group("stock", max_active=1)
app.group("newsletter", enabled=False)


# Operations: short, quiet, often


@app.job("heartbeat-check", group="ops", labels={"team": "platform"})
async def heartbeat_check(ctx):
    """Checks whether the site answers."""
    await asyncio.sleep(0.05)
    return {"status": "ok"}


@app.job("nightly-cleanup", group="ops", labels={"team": "platform"})
@retry(attempts=3, interval=60)
async def nightly_cleanup(ctx):
    """Vacuums stale rows."""
    await asyncio.sleep(1)


@app.job("thumbnail", group="media", labels={"team": "web"})
def thumbnail(ctx):
    """A plain function: it runs in a thread."""
    digest = hashlib.sha256()
    for _ in range(200):
        if ctx.cancelled:
            return None
        digest.update(b"pixels" * 1000)
    return {"sha256": digest.hexdigest()}


app.schedule("heartbeat-check", job=heartbeat_check, when=every(seconds=2))
app.schedule("nightly-cleanup", job=nightly_cleanup, when=cron("15 3 * * *", tz="Europe/Berlin"))
app.schedule("thumbnails", job=thumbnail, when=cron("*/3 * * * * *"))


# One job for many customers, and a cap on how many at once


class Customer(msgspec.Struct):
    """The customer to pull from the CRM."""

    id: int
    name: str
    full: bool = False


@app.job("sync-customer", title="Sync one customer", labels={"team": "crm"})
async def sync_customer(ctx, customer: Customer):
    """Pulls one customer from the CRM."""
    await asyncio.sleep(random.uniform(0.3, 1.2))
    return {"customer": customer.id, "changes": random.randint(0, 5)}


app.schedule_many(
    "sync",
    job=sync_customer,
    items=[
        Customer(id=number, name=name)
        for number, name in enumerate(["Ada", "Grace", "Edsger", "Barbara", "Tony"], start=1)
    ],
    key=lambda customer: customer.name.lower(),
    when=every(seconds=4),
)


# A chain: each success queues its dependents


@app.job("export-orders", group="reports", labels={"team": "data", "tier": "1"})
async def export_orders(ctx):
    """Fails sometimes and is retried."""
    if ctx.attempt == 1 and random.random() < 0.4:
        raise ConnectionError("the order database hung up")
    await asyncio.sleep(0.2)
    return {"orders": random.randint(10, 99)}


@app.job("load-orders", group="reports", labels={"team": "data"})
async def load_orders(ctx):
    """Loads the export."""
    ctx.progress(100, "all rows are in")


@app.job("send-mail", group="mail", labels={"team": "data"})
async def send_mail(ctx):
    """Runs at most six times a minute; the rest waits."""


app.schedule(
    "export-orders",
    job=export_orders,
    when=every(seconds=6),
    retry=retry(attempts=5, interval=0.5, backoff=1.5),
).include(load_orders).include("mail-export-done", job=send_mail)
app.manifest(load_orders).include("refresh-dashboard", job=load_orders).include(
    "mail-summary", job=send_mail
)


@app.job("daily-report", group="reports", labels={"team": "data", "tier": "1"})
async def daily_report(ctx):
    """Writes the daily report."""
    await asyncio.sleep(0.3)
    return {"pages": 12}


app.schedule("daily-report", job=daily_report, when=daily("02:30", tz="Europe/Berlin"))
app.schedule("board-report", job=daily_report, when=weekly("mon", "06:00", tz="Europe/Berlin"))
app.schedule("statement", job=daily_report, when=monthly(1, "07:00", months="quarters"))
app.schedule("report-by-hand", job=daily_report, when=manual())
# Today is a holiday, so that the calendar shows an excluded day.
app.schedule(
    "workday-report",
    job=daily_report,
    when=every(seconds=15, exclude=exclude_dates(f"{datetime.now(UTC):%Y-%m-%d}")),
)


# Long, with progress and a log; it fires more often than it ends


@app.job("stocktaking", group="stock", labels={"team": "warehouse"})
@every(seconds=5, name="of-all-aisles")
async def stocktaking(ctx):
    """Takes longer than its cadence: due times during a run are skipped."""
    aisles = 20
    for aisle in range(1, aisles + 1):
        ctx.progress(100 * aisle / aisles, f"aisle {aisle} of {aisles}")
        if aisle % 10 == 0:
            ctx.log.warning("a shelf is empty", aisle=aisle)
        elif aisle % 4 == 0:
            ctx.log.info("counted", aisle=aisle, articles=random.randint(20, 80))
        await asyncio.sleep(0.4)
    return {"aisles": aisles}


# Permanent failures: two fingerprints, four dead letters


class Supplier(msgspec.Struct):
    """The supplier whose price list to import."""

    name: str
    currency: str


@app.job("import-prices", group="imports", labels={"team": "buying"})
async def import_prices(ctx, supplier: Supplier):
    """Knows only a few currencies. Edit the input of a dead letter and retry it."""
    if supplier.currency not in ("EUR", "USD", "GBP"):
        raise ValueError(f"currency {supplier.currency!r} is unknown")
    await asyncio.sleep(0.1)
    return {"supplier": supplier.name}


@app.job("charge-cards", group="payments", labels={"team": "billing", "tier": "1"})
@every(seconds=10, name="of-today")
async def charge_cards(ctx):
    """Fails without a retry, because the bank refuses."""
    raise Fatal("the bank refuses our certificate: it has expired")


app.schedule_many(
    "import-prices",
    job=import_prices,
    items={
        "acme": Supplier(name="Acme", currency="EUR"),
        "globex": Supplier(name="Globex", currency="XTS"),
        "initech": Supplier(name="Initech", currency="XTS"),
        "umbrella": Supplier(name="Umbrella", currency="XTS"),
    },
    when=every(seconds=5),
    retry=retry(attempts=2, interval=0.5),
)


# Waiting work: for a worker, for a group, for its time


@app.job("print-labels", group="stock", elsewhere=True, labels={"team": "warehouse"})
def print_labels(ctx):
    """Has no worker, so its work waits for one."""


@app.job("newsletter", group="newsletter", labels={"team": "web"})
async def newsletter(ctx):
    """Is in a disabled group, which holds its work."""


app.schedule("print-labels", job=print_labels, when=every(seconds=10))
app.schedule("newsletter", job=newsletter, when=every(seconds=10))


# An operator, for the audit


@app.job("grace-at-work", group="people", description="Does by a client what people do by hand.")
@spaced(hours=12, name="now")
async def grace_at_work(ctx):
    async with Client(os.environ["HEADWAY_URL"], token=os.environ["HEADWAY_TOKEN"]) as headway:
        await headway.disable("sync-tony")
        await headway.pause("nightly-cleanup", reason="the disk is being changed")
        await headway.change("export-orders", attempts=6)
        await headway.change_group("media", max_active=2, priority=3)
        await headway.trigger("newsletter")
        await headway.trigger("daily-report", delay=3600)
        await headway.trigger("report-by-hand")
        await asyncio.sleep(9)
        await headway.enable("sync-tony")  # the calendar shows the skipped fires
        while not (counting := await headway.runs(job="stocktaking", state="in_progress")):
            await asyncio.sleep(0.2)
        await headway.cancel(counting[0].run, reason="the auditors are in the way")
        letters = await headway.dead_letters(manifest="import-prices-umbrella")
        if letters:
            await headway.acknowledge(letters[0].dead_letter, note="Umbrella is out of business")
            await headway.disable("import-prices-umbrella")
