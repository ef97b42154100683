"""A key is reused after the scheduler deleted it, while the dispatcher still has its work."""

from datetime import timedelta
from uuid import UUID

import headway
import pytest
import pytest_asyncio
from headway import App, Fatal, manual
from headway_clock import utc_now
from headway_postgres_kit import DATABASE_CLOCK
from headway_scheduler.retention import Retention
from support.invariants import broken_invariants
from support.timeline import SetClock

pytestmark = pytest.mark.thorough

# The invariant that breaks because the scheduler deletes its rows before the dispatcher.
FORGOTTEN = "I1: work of a manifest that no occurrence tells of"


class Shop:
    """A job whose first run may fail for good, its manifest, and the work that ran."""

    def __init__(self, world, *, hopeless: bool) -> None:
        self.world = world
        self.ran: list[UUID] = []
        self.app = App("shop")

        @self.app.job("mail")
        async def mail(ctx):
            self.ran.append(ctx.work)
            if hopeless and len(self.ran) == 1:
                raise Fatal("no address")

        self.app.schedule("letters", job=mail, when=manual(), on_dead_letter="go_on")

    async def open(self) -> None:
        await self.world.dispatcher()
        await self.world.worker(self.app)
        await self.world.scheduler(self.app)

    async def forget_keys(self) -> None:
        """Delete the rows that only the scheduler deletes after a month."""
        database = self.world.database
        database.clock = SetClock(utc_now() + timedelta(days=31))
        await Retention(database, days=30).run_once()
        database.clock = DATABASE_CLOCK


@pytest_asyncio.fixture(params=[False, True], ids=["completed", "a letter of it waits"])
async def shop(request, world) -> Shop:
    made = Shop(world, hopeless=request.param)
    await made.open()
    return made


@pytest_asyncio.fixture(params=["enqueued", "triggered"])
async def request_work(request, application, world):
    """Return a function that requests work with the same key each time."""
    if request.param == "enqueued":
        yield lambda: headway.enqueue(application, "mail", key="k")
        return

    async def trigger() -> UUID:
        return (await client.trigger("letters", key="k")).work

    async with world.client() as client:
        yield trigger


@pytest.mark.breaks_tables("the scheduler deletes rows that the dispatcher still has")
async def test_a_reused_key_creates_new_work_that_runs(shop, request_work, world):
    first = await request_work()
    await world.until_settled()
    assert await request_work() == first, "the key is remembered"
    await shop.forget_keys()
    second = await request_work()
    await world.until_settled(at_least=2)
    assert second != first
    assert shop.ran == [first, second]
    assert await request_work() == second
    for letter in await world.rows("SELECT id FROM dispatcher.dead_letter"):
        async with world.client() as client:
            await client.retry(letter["id"])
        await world.until_settled(at_least=2)
        assert shop.ran == [first, second, first]
    broken = await broken_invariants(world.database)
    assert [violation for violation in broken if not violation.startswith(FORGOTTEN)] == []
