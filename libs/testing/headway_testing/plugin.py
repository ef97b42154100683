"""The pytest plugin: a factory of worlds, which end with their test."""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import datetime
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
    """A factory of worlds, which takes an app and the time to start at."""
    # Here and not above: pytest loads plugins at every start, and few tests ask for a world.
    from headway_testing.world import World  # noqa: PLC0415

    async with AsyncExitStack() as worlds:
        made = 0

        async def make(app: "App", *, start: str | datetime, **settings: Any) -> "World":
            nonlocal made
            made += 1
            folder = tmp_path / f"headway-{made}"
            return await worlds.enter_async_context(
                World(app, start=start, folder=folder, **settings)
            )

        yield make


def pytest_sessionfinish(session: pytest.Session) -> None:  # noqa: ARG001 - pytest's
    """Delete the database clusters that the worlds of the session used."""
    servers = sys.modules.get("headway_testing.servers")
    if servers is not None:
        servers.forget_clusters()
