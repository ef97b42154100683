"""The measured app: its jobs compute nothing, so all cost is Headway's."""

import asyncio
from typing import Any

from headway import App, manual

# One manifest for each trigger of the latency scenario, so that none waits for another.
TRIGGERED = 200

app = App("headway-bench")


@app.job("nothing", group="bench")
async def nothing(ctx: object, order: Any = None) -> None:
    """Do nothing."""


@app.job("sleep", group="bench")
async def sleep(_ctx: object, seconds: float) -> None:
    """Occupy a slot for some time."""
    await asyncio.sleep(seconds)


app.schedule_many("ask", job="nothing", items=range(TRIGGERED), key=str, when=manual())
