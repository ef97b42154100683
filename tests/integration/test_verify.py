"""`verify` finds what is not as history says, and nothing else."""

import pytest_asyncio
from headway import App, Fatal, every, retry
from headway_dispatcher.verify import verify


def demo() -> App:
    app = App("verify")

    @app.job("good")
    @every(hours=1)
    async def good(ctx):
        return {"said": "hello"}

    @app.job("flaky")
    @every(hours=1)
    @retry(attempts=3, interval=0.01)
    async def flaky(ctx):
        if ctx.attempt < 2:
            raise ValueError("not yet")

    @app.job("hopeless")
    @every(hours=1)
    async def hopeless(ctx):
        raise Fatal("never")

    return app


@pytest_asyncio.fixture
async def settled(world):
    """A world in which work completed, was retried, and became a dead letter."""
    app = demo()
    await world.dispatcher()
    await world.worker(app)
    await world.fire(app)
    await world.until_settled(at_least=3)
    return world


async def test_it_is_true_of_a_system_that_runs(settled):
    verified = await verify(settled.database)
    assert verified.differences == []
    assert (verified.works, verified.runs, verified.dead_letters) == (3, 4, 1)
