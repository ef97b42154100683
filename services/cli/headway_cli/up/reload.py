"""`up --reload`: follow changes of the app's files, without a restart of servers and services."""

import asyncio
import importlib
import sys
import webbrowser
from collections.abc import Callable
from pathlib import Path

from headway import InvalidDefinitions
from headway.define.definitions import Definitions
from headway_contract import InvalidName
from headway_scheduler.wiring import declare
from watchfiles import Change, DefaultFilter, awatch

from headway_cli.serve import settings
from headway_cli.serve.find_app import AppNotFound, load_app
from headway_cli.up.plan import Plan
from headway_cli.up.services import Services

Say = Callable[[str], None]

_SUFFIXES = (".py", ".yaml", ".yml")


async def open_browser(link: str, say: Say) -> None:
    """Open a link in the browser of this machine, if there is one."""
    # In a thread: a browser in the terminal would end first.
    if not await asyncio.to_thread(webbrowser.open, link):
        say("no browser could be opened: 'headway sign-in' prints a link")


def follow_changes(plan: Plan, services: Services, say: Say) -> asyncio.Task[None]:
    """Return a task that reloads the app after each change; a check of the services checks it."""
    task = asyncio.create_task(_follow(plan, services, say))
    services.followers.append(task)
    return task


async def _follow(plan: Plan, services: Services, say: Say) -> None:
    folder = folder_of(plan.app)
    say(f"watching {folder} for changes")
    async for changes in awatch(folder, watch_filter=_Sources()):
        names = sorted({Path(path).name for _, path in changes})
        try:
            definitions = await asyncio.to_thread(_load_again, plan.app, folder)
        except (AppNotFound, InvalidDefinitions, InvalidName) as error:
            say(f"{', '.join(names)} changed, but the previous version keeps running: {error}")
            continue
        await asyncio.gather(*(worker.restart() for worker in services.workers))
        await declare(services.scheduler, plan.scheduler, definitions)
        for name in ("relay", "tick"):
            services.scheduler.wake(name)
        say(f"{', '.join(names)} changed: reloaded")


def folder_of(app: str) -> Path:
    """Return the folder of an app's file, or the current one if the app is a module."""
    path = Path(app.partition(":")[0])
    return (path.parent if path.suffix in _SUFFIXES else Path()).resolve()


def _load_again(app: str, folder: Path) -> Definitions:
    """Import the app again, with all its modules that are in the folder."""
    for name, module in list(sys.modules.items()):
        path = Path(getattr(module, "__file__", None) or "/")
        ours = name == "__main__" or name.startswith("headway")
        if path.is_relative_to(folder) and "site-packages" not in path.parts and not ours:
            del sys.modules[name]
    importlib.invalidate_caches()
    return load_app(app).definitions(settings.read_defaults())


class _Sources(DefaultFilter):
    """Python and YAML files, but not those of caches and environments."""

    def __call__(self, change: Change, path: str) -> bool:
        return path.endswith(_SUFFIXES) and super().__call__(change, path)
