"""Finding the user's app."""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from headway import App


class AppNotFound(Exception):
    """There is no app where one was named."""


def load_app(target: str) -> App:
    """Load an app from `module`, `module:name` or `path/to/file.py[:name]`."""
    place, _, name = target.partition(":")
    module = _import_file(Path(place)) if place.endswith(".py") else _import_module(place)
    if name:
        found = getattr(module, name, None)
        if not isinstance(found, App):
            raise AppNotFound(f"{target!r}: {name!r} in {place} is not a headway.App")
        return found
    apps = {id(value): value for value in vars(module).values() if isinstance(value, App)}
    if len(apps) == 1:
        return next(iter(apps.values()))
    count = "no headway.App" if not apps else f"{len(apps)} apps"
    raise AppNotFound(f"{target!r} holds {count}: name one, as in {place}:app")


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise AppNotFound(f"there is no file {str(path)!r}: give a path to your app, or a module")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None  # noqa: S101 - a .py file always has one
    assert spec.loader is not None  # noqa: S101
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent.resolve()))
    with _explained(str(path)):
        spec.loader.exec_module(module)
    return module


def _import_module(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    with _explained(name):
        return importlib.import_module(name)


class _explained:  # noqa: N801 - reads as a statement
    """Say in one line why the user's module could not be imported."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception):
            raise AppNotFound(
                f"cannot import the app {self.what!r}: {type(error).__name__}: {error}"
            ) from error
