"""An app that gets into trouble when a test says so: for the pages of work, runs and dead letters."""

import asyncio

import msgspec
from headway import App, retry

from support.cadences import when_made_due
from support.shown_app import HOSTILE, HOSTILE_QUOTED


class Order(msgspec.Struct):
    """Input of an order."""

    item: str
    pieces: int = 1


class TroubledApp:
    """The app, and what a test holds in its hands."""

    def __init__(self) -> None:
        self.app = App("shop")
        self.broken = True
        self._released = asyncio.Event()
        self._steps: asyncio.Queue[str] = asyncio.Queue()
        self._declare()

    def release(self) -> None:
        """Let the slow job end."""
        self._released.set()

    def hold(self) -> None:
        """Keep the slow job from ending."""
        self._released.clear()

    def say(self, message: str) -> None:
        """Let the slow job log something."""
        self._steps.put_nowait(message)

    def _declare(self) -> None:
        app = self.app
        app.group("slow", max_active=1)

        @app.job("ship", group="orders")
        @retry(attempts=2, interval=0.05)
        async def ship(ctx, order: Order):
            if self.broken or order.item == "anvil":
                raise ValueError(f"no room for {HOSTILE} and {HOSTILE_QUOTED}")
            return {"shipped": order.item}

        @app.job("slow", group="slow")
        async def slow(ctx):
            ctx.progress(40, f"half way {HOSTILE}")
            while not self._released.is_set():
                try:
                    async with asyncio.timeout(0.05):
                        ctx.log.info(await self._steps.get(), by=HOSTILE_QUOTED)
                except TimeoutError:
                    continue

        app.schedule("deliver", job=ship, when=when_made_due(), input=Order(item="lamp"))
        app.schedule("archive", job=slow, when=when_made_due())
        app.schedule("archive-2", job=slow, when=when_made_due())
