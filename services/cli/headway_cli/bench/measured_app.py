"""The measured app: its job does nothing, so all cost is Headway's."""

from typing import Any

from headway import App, manual

# One manifest for each trigger of the latency scenario, so that none waits for another.
TRIGGERED = 200

app = App("headway-bench")


@app.job("nothing", group="bench")
async def nothing(ctx: object, order: Any = None) -> None:
    """Do nothing."""


app.schedule_many("ask", job="nothing", items=range(TRIGGERED), key=str, when=manual())
