"""A nightly job with five weeks behind it, for a picture: real services under a virtual clock."""

import asyncio
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, time, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from headway import App, daily, retry, skip_missed
from headway.testing import World
from headway_clock import utc_now
from headway_console.wiring import open_client
from support.consoles import LOCAL, run_console

MANIFEST = "nightly-report"
ZONE = "Europe/Berlin"
DAYS = 38
# Nights ago.
OUTAGE, DISABLED, SLOW_START, BROKEN = 31, range(15, 18), (24, 11, 4), 7


# A worker reports the start of a body that does not end at once.
_START_SECONDS = 0.3


class Nightly:
    """The app; its bodies take virtual time, and fail in some nights."""

    def __init__(self) -> None:
        self.app = App("billing")
        self.world: World | None = None
        self.failing: set[datetime] = set()
        self.stumbling: set[datetime] = set()

        @self.app.job(MANIFEST, group="reports", title="Nightly report")
        @retry(attempts=3, interval=60, jitter=0)
        async def report(ctx):
            """Writes the report of the day."""
            await self.pass_seconds(40 + zlib.crc32(str(ctx.due_at).encode()) % 35)
            if ctx.due_at in self.failing or (ctx.due_at in self.stumbling and ctx.attempt == 1):
                raise ConnectionError("the order database does not answer")
            return {"pages": 12}

        @self.app.job("mail-report", group="mail")
        async def mail(ctx):
            """Mails the report."""
            await self.pass_seconds(2)

        when = daily("02:30", tz=ZONE, misfire=skip_missed())
        self.app.schedule(MANIFEST, job=report, when=when).include("mail-report", job=mail)

    async def pass_seconds(self, seconds: float) -> None:
        """Let a body take time, once its start is recorded."""
        assert self.world is not None
        await asyncio.sleep(_START_SECONDS)
        self.world.clock.advance(self.world.now + timedelta(seconds=seconds))


def night(days_ago: int) -> datetime:
    """Return the due time of a night."""
    zone = ZoneInfo(ZONE)
    return datetime.combine(
        utc_now().astimezone(zone).date() - timedelta(days=days_ago), time(2, 30), zone
    )


async def live(shown: Nightly, world: World) -> None:
    """Let five weeks pass, with what happens in them."""
    shown.world = world
    shown.stumbling = {night(days) for days in SLOW_START}
    shown.failing = {night(BROKEN)}
    world.down("scheduler", at=night(OUTAGE) - timedelta(hours=2), hours=4)
    servers = world._processes.servers
    async with open_client(
        servers.database_url, servers.nats_url, actor="grace", now=lambda: world.now
    ) as grace:
        await world.run_until(night(DISABLED[-1]) - timedelta(hours=9))
        await grace.disable(MANIFEST)
        await world.run_until(night(DISABLED[0]) + timedelta(hours=6))
        await grace.enable(MANIFEST)
        await world.run_until(night(BROKEN) + timedelta(hours=6))
        shown.failing.clear()
        [letter] = await grace.dead_letters()
        await grace.retry(letter.dead_letter)
        await world.run_until(utc_now())


@asynccontextmanager
async def running_nightly(folder: Path) -> AsyncIterator[str]:
    """Yield the address of the console of the nightly job, after its five weeks."""
    shown = Nightly()
    start = night(DAYS) - timedelta(hours=12)
    async with World(shown.app, start=start, folder=folder) as world:
        await live(shown, world)
        servers = world._processes.servers
        async with run_console(
            servers.database_url, servers.nats_url, folder, local=LOCAL
        ) as console:
            yield console.url
