"""The app of tests/e2e/test_jaeger.py: a schedule, a retry, and a dependent."""

from headway import App, every, retry

app = App("reports")


@app.job("report", group="reports")
@retry(attempts=2, interval=0.05, jitter=0)
async def report(ctx):
    if ctx.attempt == 1:
        raise ConnectionError("the report server hung up")


@app.job("mail", group="reports")
async def mail(ctx): ...


app.schedule("report", job=report, when=every(seconds=2)).then("mail-report", job=mail)
