"""An app with something to see on every page of the console, some of it hostile."""

import asyncio

import msgspec
from headway import App, When, daily, retry
from headway_clock import utc_now

from support.cadences import when_made_due

HOSTILE = "<img src=x onerror=alert(1)>"
HOSTILE_QUOTED = '"><script>alert(2)</script>'


def hours_away() -> When:
    """Return a daily time that is half a day away, so that it does not fire during a test."""
    return daily(f"{(utc_now().hour + 12) % 24:02}:00")


class Greeting(msgspec.Struct):
    """Input of a greeting."""

    name: str
    times: int = 1
    loud: bool = False


class ShownApp:
    """The app, and what holds its slow job until the test lets it go."""

    def __init__(self) -> None:
        self.app = App("shop")
        self._released = asyncio.Event()
        self.greeted: list[Greeting] = []
        self._declare()

    def release(self) -> None:
        """Let the slow job end."""
        self._released.set()

    def hold(self) -> None:
        """Keep the slow job from ending."""
        self._released.clear()

    def _declare(self) -> None:
        app = self.app
        app.group("reports", max_active=3)
        app.group("slow", max_active=1)

        @app.job("greet", group="hello", title="Greet somebody", description=HOSTILE)
        async def greet(ctx, greeting: Greeting):
            self.greeted.append(greeting)
            return {"greeted": greeting.name}

        @app.job("report", group="reports", title=HOSTILE_QUOTED)
        async def report(ctx):
            return {"pages": 3}

        @app.job("mail", group="reports")
        async def mail(ctx):
            return None

        @app.job("broken", group="reports")
        @retry(attempts=1)
        async def broken(ctx):
            raise ValueError(f"no such table: {HOSTILE} {HOSTILE_QUOTED}")

        @app.job("slow", group="slow")
        async def slow(ctx):
            ctx.progress(40, f"half way {HOSTILE}")
            await self._released.wait()

        app.schedule("greeting", job=greet, when=when_made_due(), input=Greeting(name="Ada"))
        app.schedule(
            "nightly-report",
            job=report,
            when=daily("02:30", tz="Europe/Berlin"),
            labels={"team": "billing", "note": HOSTILE},
        )
        app.manifest("nightly-report").then("mail-report", job=mail)
        app.schedule("import", job=broken, when=when_made_due())
        app.schedule("archive", job=slow, when=hours_away())
