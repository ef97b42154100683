"""Fixtures that start separate processes against the test's servers."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from support.processes import Processes
from support.shell import Shell


@pytest_asyncio.fixture
async def processes(
    request, database_url: str, nats_url: str, tmp_path: Path
) -> AsyncIterator[Processes]:
    """Start programs against the test's servers, with the settings of the test's parameter."""
    folder = tmp_path / "processes"
    folder.mkdir()
    made = Processes(database_url, nats_url, folder, **getattr(request, "param", {}))
    yield made
    await made.stop()
    print(made.logs())


GOOD = """
from headway import App, every
app = App("good")
@app.job("hello")
@every(seconds=1)
async def hello(ctx): ...
"""


BAD = """
from headway import App, cron, every
app = App("bad")
app.group("two words")
@app.job("dotted.name")
async def dotted(ctx): ...
@app.job("count")
@cron("99 * * * *", name="odd")
async def count(ctx, number: int = 0): ...
app.schedule("twice", job=count, when=every(seconds=1), input=1)
app.schedule("twice", job=count, when=every(seconds=1), input=1)
app.schedule("misfit", job=count, when=every(seconds=1), input="one")
app.schedule("orphan", job="nobody", when=every(seconds=1))
app.schedule("two words", job=count, when=every(seconds=1), input=1)
"""


@pytest.fixture
def shell(tmp_path) -> Shell:
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "good.py").write_text(GOOD)
    (folder / "bad.py").write_text(BAD)
    return Shell(folder)
