"""One browser for the session, one real system for a module, a signed-in page for a test."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect
from support.browsers import System, open_page, run_chromium, run_system
from support.servers import TestPostgres
from support.shown_app import ShownApp

# A busy machine takes its time.
expect.set_options(timeout=20_000)


@pytest_asyncio.fixture(scope="session")
async def chromium() -> AsyncIterator[Browser]:
    """A browser; tests are skipped where there is none."""
    async with run_chromium() as browser:
        yield browser


@pytest_asyncio.fixture(scope="module")
async def system(
    chromium: Browser, postgres: TestPostgres, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[System]:
    """Scheduler, dispatcher, worker and console, with the app that has something to show."""
    async with run_system(postgres, tmp_path_factory.mktemp("system"), ShownApp()) as made:
        yield made


@pytest_asyncio.fixture
async def page(chromium: Browser, system: System) -> AsyncIterator[Page]:
    """A page of the person at this machine, who may do everything."""
    async with open_page(chromium, system) as made:
        yield made
