"""Headway for users: define jobs and when they run, and run them.

    from headway import App, cron, every, retry

    app = App("billing")

    @app.job("nightly-cleanup", group="ops", description="Vacuums stale rows.")
    @cron("15 3 * * *", tz="Europe/Berlin")
    @retry(attempts=3, interval=60)
    async def nightly_cleanup(ctx):
        ...

`App` collects definitions, `headway.worker` runs their bodies, and `Client` asks how things
stand. Nothing here talks to a database, and importing a module of definitions talks to nobody.
"""

from headway.app import App
from headway.cadences import cron, every
from headway.client import Client
from headway.context import Context
from headway.definitions import InvalidDefinitions
from headway.errors import Fatal
from headway.marks import retry

__all__ = ["App", "Client", "Context", "Fatal", "InvalidDefinitions", "cron", "every", "retry"]
