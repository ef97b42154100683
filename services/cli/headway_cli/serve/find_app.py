"""Finding the user's app, in Python or in YAML.

Whatever is wrong with the user's module is told as the user would say it: which file, which
line, what.
"""

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, ModuleType

from headway import App, InvalidDefinitions
from headway.yaml_file import SUFFIXES, read_app
from headway_contract import InvalidName


class AppNotFound(Exception):
    """There is no app where one was named."""


def load_app(target: str) -> App:
    """Load an app from `module`, `module:name`, `path/to/file.py[:name]` or a YAML file.

    An app from YAML declares but has no bodies: whoever asks for its `jobs` is told so.
    """
    if target.endswith(SUFFIXES):
        return _read_yaml(Path(target))
    place, _, name = target.partition(":")
    module = _import_file(Path(place)) if place.endswith(".py") else _import_module(place)
    apps = {called: value for called, value in vars(module).items() if isinstance(value, App)}
    if name:
        if name not in apps:
            known = f"it has {_listed(apps)}" if apps else "it has none"
            raise AppNotFound(f"{name!r} in {place} is no headway.App: {known}")
        return apps[name]
    if not apps:
        raise AppNotFound(f"there is no headway.App in {place}: write app = App('name') there")
    if len({id(app) for app in apps.values()}) > 1:
        raise AppNotFound(
            f"there are several apps in {place} ({_listed(apps)}): "
            f"name one, as in {place}:{next(iter(apps))}"
        )
    return next(iter(apps.values()))


def _read_yaml(path: Path) -> App:
    if not path.is_file():
        raise _no_file(path)
    return read_app(path)


def _no_file(path: Path) -> AppNotFound:
    return AppNotFound(f"there is no file {str(path)!r}: give the path of your app, or a module")


def _listed(apps: dict[str, App]) -> str:
    return ", ".join(apps)


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise _no_file(path)
    name = path.stem
    if name in sys.modules:  # a file called headway.py must not hide Headway
        name = f"app_in_{name}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None  # noqa: S101 - a .py file always has one
    assert spec.loader is not None  # noqa: S101
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _look_in(path.parent)
    with _explained(str(path)):
        spec.loader.exec_module(module)
    return module


def _import_module(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        hint = f"; did you mean {name}.py?" if Path(f"{name}.py").is_file() else ""
        raise AppNotFound(
            f"{name!r} is no app: give a file as in app.py, or a module as in package.app{hint}"
        )
    _look_in(Path.cwd())
    with _explained(name):
        return importlib.import_module(name)


def _look_in(folder: Path) -> None:
    """Let the app import its neighbours, as a script could."""
    place = str(folder.resolve())
    if place not in sys.path:
        sys.path.insert(0, place)


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Say in one line why the user's module could not be imported."""
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
    """Where it happened, in the last line that the user wrote."""
    lines = [
        f" ({Path(frame.f_code.co_filename).name}, line {line})"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if _is_the_users(frame)
    ]
    return lines[-1] if lines else ""


def _is_the_users(frame: FrameType) -> bool:
    """Whether the code is neither Python's, nor ours, nor of an installed package."""
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    installed = "site-packages" in Path(frame.f_code.co_filename).parts
    ours = package == "headway" or package.startswith("headway_")
    return not (installed or ours or package in sys.stdlib_module_names)
