"""Load the user's app, in Python or in YAML; errors name the file and line of the user's code."""

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from headway import App, InvalidDefinitions
from headway.define.options import lacks_job
from headway.yaml_file import SUFFIXES, read_app
from headway_contract import InvalidName


class AppNotFound(Exception):
    """No app was found where one was named."""


def load_app(target: str) -> App:
    """Load an app from `module`, `module:name`, `path/to/file.py[:name]` or a YAML file.

    An app from YAML declares jobs but has no bodies.
    """
    if target.endswith(SUFFIXES):
        return read_app(_existing(Path(target)))
    place, _, name = target.partition(":")
    module = _import_file(Path(place)) if place.endswith(".py") else _import_module(place)
    apps = {key: value for key, value in vars(module).items() if isinstance(value, App)}
    for key, value in vars(module).items():
        if lacks_job(value) and value.__module__ == module.__name__:
            raise AppNotFound(
                f"the function {key!r} in {place} has a cadence and is no job, so it would never "
                f"run: put @app.job({key!r}) above it"
            )
    if name:
        if name not in apps:
            known = f"it has {', '.join(apps)}" if apps else "it has none"
            raise AppNotFound(f"{name!r} in {place} is not a headway.App: {known}")
        return apps[name]
    if not apps:
        raise AppNotFound(f"there is no headway.App in {place}: write app = App('name') there")
    if len({id(app) for app in apps.values()}) > 1:
        raise AppNotFound(
            f"there are several apps in {place} ({', '.join(apps)}): "
            f"name one, as in {place}:{next(iter(apps))}"
        )
    return next(iter(apps.values()))


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise AppNotFound(f"there is no file {str(path)!r}: give the path of your app, or a module")
    return path


def _import_file(path: Path) -> ModuleType:
    name = _existing(path).stem
    if name in sys.modules:  # a file called headway.py must not hide Headway
        name = f"app_in_{name}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None  # noqa: S101 - a .py file always has one
    assert spec.loader is not None  # noqa: S101
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _add_to_path(path.parent)
    with _explained(str(path)):
        spec.loader.exec_module(module)
    return module


def _import_module(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        hint = f"; did you mean {name}.py?" if Path(f"{name}.py").is_file() else ""
        raise AppNotFound(
            f"{name!r} is not an app: give a file as in app.py, or a module as in package.app{hint}"
        )
    _add_to_path(Path.cwd())
    with _explained(name):
        return importlib.import_module(name)


def _add_to_path(folder: Path) -> None:
    """Let the app import modules of its folder, as a script can."""
    place = str(folder.resolve())
    if place not in sys.path:
        sys.path.insert(0, place)


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Raise `AppNotFound` with the reason if the user's module cannot be imported."""
    try:
        yield
    except (Exception, SystemExit) as error:
        raise AppNotFound(f"cannot import the app {what!r}: {_reason(error, what)}") from error


def _reason(error: BaseException, what: str) -> str:
    match error:
        case ModuleNotFoundError(name=str(name)) if what == name or what.startswith(f"{name}."):
            return f"there is no module {name!r} here; run it where your code is, or give a file"
        case ModuleNotFoundError(name=name):
            reason = f"it needs {name!r}, which is not installed here"
        case SyntaxError():
            return f"{error.msg} ({Path(error.filename or what).name}, line {error.lineno})"
        case SystemExit():
            reason = "it exits when it is imported; put that under if __name__ == '__main__'"
        case InvalidName() | InvalidDefinitions():
            reason = str(error)
        case _:
            reason = f"{type(error).__name__}: {error}"
    return " ".join(reason.split()) + _place(error)


def _place(error: BaseException) -> str:
    """Name the last line of the user's code in the traceback."""
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        path = Path(frame.f_code.co_filename)
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        ours = package == "headway" or package.startswith("headway_")
        if not (ours or "site-packages" in path.parts or package in sys.stdlib_module_names):
            place = f" ({path.name}, line {line})"
    return place
