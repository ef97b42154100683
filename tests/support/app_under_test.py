"""The app that end-to-end tests run: slow enough to be killed in the middle."""

import asyncio
import os
from pathlib import Path

from headway import App, every, retry

app = App("e2e")
app.group("capped", max_active=2)
folder = Path(os.environ.get("HEADWAY_TEST_FOLDER", "."))


@app.job("slow", group="slow")
@every(seconds=2)
@retry(attempts=5, interval=0.2)
async def slow(ctx):
    """Takes a while the first time, and leaves a file that says that it has begun."""
    begun = folder / "begun"
    if not begun.exists():
        begun.write_text(str(ctx.run))
        await asyncio.sleep(5)
    return str(ctx.run)


@app.job("quick", group="capped")
async def quick(ctx, number: int):
    await asyncio.sleep(0.02)
    return number


for number in range(6):
    app.schedule(f"quick-{number}", job=quick, when=every(seconds=1), input=number)
