"""An app whose bodies leave a line each time they begin: who ran what, how often."""

import asyncio
import os
from pathlib import Path

from headway import App, every, retry

app = App("counting")
folder = Path(os.environ.get("HEADWAY_TEST_FOLDER", "."))


@app.job("count", group="load")
@retry(attempts=5, interval=0.2)
async def count(ctx, number: int):
    """Takes between nothing and half a second, so that some are always under way."""
    with (folder / "executions").open("a") as lines:
        lines.write(f"{ctx.work} {os.getpid()}\n")
    await asyncio.sleep(number % 10 / 20)
    return number


for number in range(40):
    app.schedule(f"count-{number}", job=count, when=every(seconds=1), input=number)
