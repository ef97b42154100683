"""The app whose one job runs in TypeScript, and whose other one follows it in Python."""

from typing import Any

from headway import App, manual

app = App("traced")


@app.job("ts-echo", group="g", elsewhere=True)
def echo(ctx, given: Any) -> None:
    raise AssertionError("this body runs in TypeScript")


@app.job("after", group="g")
async def after(ctx): ...


app.schedule("parent", job="ts-echo", when=manual(), input={"id": 7}).then("child", job=after)
