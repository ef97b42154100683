"""The jobs of this app, and when they run: `headway up app.py` starts everything."""

from headway import App, Context, daily, every, retry

app = App("hello")


@app.job("greet")
@every(seconds=2)
async def greet(ctx: Context) -> None:
    """Say hello every two seconds."""
    ctx.log.info("hello", due=str(ctx.due_at))


@app.job("report")
@daily("02:30")
@retry(attempts=3, interval=60)
def report(ctx: Context, name: str = "world") -> dict[str, str]:
    """Run every night, in a thread because it is a plain function."""
    ctx.progress(50, "half of it")
    return {"greeting": f"hello {name}"}
