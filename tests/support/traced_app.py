"""The app whose traces are looked at: runs that are tried again, and dependents of both kinds."""

from headway import App, manual, retry

app = App("traced")


@app.job("flaky", group="g")
@retry(attempts=2, interval=0.05, jitter=0)
async def flaky(ctx):
    if ctx.attempt == 1:
        raise ValueError("not yet")


@app.job("stubborn", group="g")
@retry(attempts=1)
async def stubborn(ctx, patience: int):
    if patience == 0:
        raise ValueError("not at all")


@app.job("waker", group="g")
async def waker(ctx):
    await ctx.activate("woken")


@app.job("after", group="g")
async def after(ctx): ...


app.schedule("parent", job=flaky, when=manual()).then("child", job=after)
app.schedule("waker", job=waker, when=manual()).then("woken", job=after, dormant=True)
