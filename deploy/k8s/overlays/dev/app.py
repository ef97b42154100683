"""The app of the development overlay: a job in Python, and one that runs in TypeScript."""

from headway import App, every

app = App("example")


@app.job("tidy-up", group="ops", description="Runs in the Python worker.")
@every(seconds=30)
async def tidy_up(ctx):
    return {"attempt": ctx.attempt}


@app.job("greet-typescript", group="ops", elsewhere=True)
@every(seconds=30)
def greet_typescript(ctx):
    """Runs in the TypeScript worker, libs/worker-typescript/example."""
