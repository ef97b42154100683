"""Headway for users: define jobs and their schedules, and run them.

    from headway import App, Days, daily, every, retry

    app = App("billing")

    @app.job("nightly-cleanup", group="ops", description="Vacuums stale rows.")
    @daily("03:15", days=Days.WEEKDAYS, tz="Europe/Berlin")
    @retry(attempts=3, interval=60)
    async def nightly_cleanup(ctx):
        ...

    app.schedule_many("sync", job=sync_customer, items=customers, when=every(minutes=5))
    app.schedule("report", job=report, when=daily("06:00")).then("mail-report", job=mail)

`App` collects definitions, `load_yaml` reads them from a file for teams whose workers are not
Python, `headway.worker` runs the bodies, and `Client` queries and changes the running system.
Only `enqueue` uses a database, over your connection. Importing definitions connects to nothing.
"""

from typing import TYPE_CHECKING, Any

from headway_contract.fields import Rate
from headway_errors import RequestFailed

from headway.client.enqueue import enqueue
from headway.define.app import App
from headway.define.cadences import (
    cron,
    daily,
    every,
    manual,
    monthly,
    monthly_dow,
    once,
    spaced,
    weekly,
)
from headway.define.calendar import (
    LAST,
    Days,
    Months,
    Weeks,
    exclude_dates,
    exclude_days,
    exclude_range,
    exclude_times,
)
from headway.define.chain import Chain
from headway.define.declarations import Item
from headway.define.definitions import Definitions, InvalidDefinitions
from headway.define.options import allow, catch_up, fire_once, retry, skip_missed
from headway.define.when import When
from headway.errors import ActivationRefused, ActivationUnavailable, Fatal, LeaseLost
from headway.worker.context import Context
from headway.yaml_file import load_yaml

if TYPE_CHECKING:
    from headway.client.client import Client
else:

    def __getattr__(name: str) -> Any:
        """Load `Client` when it is first used: workers need no HTTP, which takes long to load."""
        if name != "Client":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from headway.client.client import Client  # noqa: PLC0415

        return Client


__all__ = [
    "LAST",
    "ActivationRefused",
    "ActivationUnavailable",
    "App",
    "Chain",
    "Client",
    "Context",
    "Days",
    "Definitions",
    "Fatal",
    "InvalidDefinitions",
    "Item",
    "LeaseLost",
    "Months",
    "Rate",
    "RequestFailed",
    "Weeks",
    "When",
    "allow",
    "catch_up",
    "cron",
    "daily",
    "enqueue",
    "every",
    "exclude_dates",
    "exclude_days",
    "exclude_range",
    "exclude_times",
    "fire_once",
    "load_yaml",
    "manual",
    "monthly",
    "monthly_dow",
    "once",
    "retry",
    "skip_missed",
    "spaced",
    "weekly",
]
