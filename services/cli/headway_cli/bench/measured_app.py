"""The measured app: its job does nothing, so all cost is Headway's."""

import os
from functools import cache
from pathlib import Path
from typing import Any

from headway import App, manual

# One manifest for each trigger of the latency scenario, so that none waits for another.
TRIGGERED = 200
FIRST_BODY_FILE = "BENCH_FIRST_BODY"

app = App("headway-bench")


@app.job("nothing", group="bench")
async def nothing(ctx: object, order: Any = None) -> None:  # noqa: ARG001 - an ordinary signature
    """Do nothing."""
    _end_start_up()


@cache
def _end_start_up() -> None:
    """Create the file that says that this worker has run its first body."""
    if file := os.environ.get(FIRST_BODY_FILE):
        Path(file).touch()


app.schedule_many("ask", job="nothing", items=range(TRIGGERED), key=str, when=manual())
