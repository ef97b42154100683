"""Processes of their own, against the test's servers."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from support.processes import Processes


@pytest_asyncio.fixture
async def processes(
    request, database_url: str, nats_url: str, tmp_path: Path
) -> AsyncIterator[Processes]:
    """Programs against the test's servers, with the settings that the test is marked with."""
    folder = tmp_path / "processes"
    folder.mkdir()
    made = Processes(database_url, nats_url, folder, **getattr(request, "param", {}))
    yield made
    await made.stop()
    print(made.logs())
