"""The pytest plugin: a fixture that makes worlds, which end with their test."""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

if TYPE_CHECKING:
    from headway import App

    from headway_testing.world import World

MakeWorld = Callable[..., Awaitable["World"]]


@pytest_asyncio.fixture
async def headway_world(tmp_path: Path) -> AsyncIterator[MakeWorld]:
    """Yield a factory of worlds, which takes an app and the start time."""
    # Imported here, because pytest loads plugins at every start, and few tests need a world.
    from headway_testing.world import World  # noqa: PLC0415

    async with AsyncExitStack() as worlds:
        folders = (tmp_path / f"headway-{number}" for number in count(1))

        async def make(app: "App", *, start: str | datetime, **settings: Any) -> "World":
            world = World(app, start=start, folder=next(folders), **settings)
            return await worlds.enter_async_context(world)

        yield make


def pytest_sessionfinish(session: pytest.Session) -> None:  # noqa: ARG001 - pytest's
    """Delete the database clusters of the session's worlds."""
    servers = sys.modules.get("headway_testing.servers")
    if servers is not None:
        servers.delete_clusters()
