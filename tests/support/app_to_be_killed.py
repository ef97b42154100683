"""The app of the kill points: short jobs that leave a line for every time that a body ran."""

import os
from pathlib import Path

from headway import App, every, retry

app = App("kills")
lines = Path(os.environ.get("HEADWAY_TEST_FOLDER", ".")) / "bodies"


@app.job("short")
@retry(attempts=5, interval=0.2)
async def short(ctx, number: int):
    with lines.open("a") as file:
        file.write(f"{ctx.work}\n")
    return number


for number in range(3):
    app.schedule(f"short-{number}", job=short, when=every(seconds=1), input=number)
