"""The app whose traces are looked at: a run that is tried again, and dependents of both kinds."""

from headway import App, manual, retry

app = App("traced")


@app.job("flaky", group="g")
@retry(attempts=2, interval=0.05, jitter=0)
async def flaky(ctx):
    if ctx.attempt == 1:
        raise ValueError("not yet")


@app.job("waker", group="g")
async def waker(ctx):
    await ctx.activate("woken")


@app.job("after", group="g")
async def after(ctx): ...


app.schedule("parent", job=flaky, when=manual()).then("child", job=after)
app.schedule("waker", job=waker, when=manual()).then("woken", job=after, dormant=True)
