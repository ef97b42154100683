"""The reference of the Python API, from signatures and docstrings."""

import ast
import inspect
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from textwrap import dedent
from typing import Any

import headway
import headway.testing
from headway_testing.world import Fire, Skip, World

_DEFINE = (
    "App", "Chain", "Item", "load_yaml", "Definitions", "InvalidDefinitions", "When", "cron",
    "every", "spaced", "daily", "weekly", "monthly", "monthly_dow", "once", "manual", "Days",
    "Weeks", "Months", "LAST", "exclude_dates", "exclude_days", "exclude_range", "exclude_times",
    "retry", "allow", "catch_up", "fire_once", "skip_missed", "Rate",
)  # fmt: skip
_SECTIONS: dict[str, tuple[str, ...]] = {
    "Definitions": _DEFINE,
    "In a job": ("Context", "Fatal", "LeaseLost", "ActivationRefused", "ActivationUnavailable"),
    "Client": ("enqueue", "Client", "RequestFailed"),
}
_TESTING = (World, Fire, Skip)
_WIDTH = 80


def text(_root: Path) -> str:
    """Describe everything that `headway` and `headway.testing` export."""
    listed = {name for names in _SECTIONS.values() for name in names}
    if missing := set(headway.__all__) - listed:
        raise ValueError(f"list in {__file__}: {', '.join(sorted(missing))}")
    parts: list[str] = []
    for title, names in _SECTIONS.items():
        parts.append(f"## {title}")
        for name in names:
            parts += _described(name, getattr(headway, name))
    parts += ["## headway.testing", "See [testing](../testing.md)."]
    for struct in _TESTING:
        parts += _described(struct.__name__, struct)
    return "\n\n".join(parts)


def _described(name: str, found: Any) -> Iterator[str]:
    yield f"### `{name}`"
    if not callable(found):
        yield f"A constant: `{found!r}`."
        return
    doc = inspect.getdoc(found) or ""
    if inspect.isclass(found) and issubclass(found, Enum):
        yield doc
        yield "Members: " + ", ".join(f"`{member.name}`" for member in found) + "."
        return
    yield _signature(name, found)
    yield doc
    if inspect.isclass(found):
        for member, value in _members(found):
            yield f"#### `{name}.{member}`"
            if callable(value):
                yield _signature(member, value)
            yield inspect.getdoc(value) or ""


def _members(found: type) -> Iterator[tuple[str, Any]]:
    """Return the documented public methods and properties of a class and its own bases."""
    for member, value in inspect.getmembers_static(found):
        if member.startswith("_"):
            continue
        plain = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        of_headway = inspect.isfunction(plain) and plain.__module__.startswith("headway")
        if of_headway or isinstance(plain, property):
            yield member, plain


def _signature(name: str, found: Any) -> str:
    """Return the first line of a definition, from its source: as it was written."""
    function = found.__init__ if inspect.isclass(found) else inspect.unwrap(found)
    prefix = "async def " if inspect.iscoroutinefunction(function) else ""
    try:
        [node] = ast.parse(dedent(inspect.getsource(function))).body
    except (OSError, TypeError):  # the fields of a struct are its parameters
        if issubclass(found, Exception):
            return _written(name, ["message: str"], "")
        fields = [str(part) for part in inspect.signature(found).parameters.values()]
        return _written(name, fields, "")
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        raise TypeError(f"{name} is no function")
    returns = f" -> {ast.unparse(node.returns)}" if node.returns and name != "__init__" else ""
    return _written(
        prefix + name, list(_parameters(node.args)), "" if inspect.isclass(found) else returns
    )


def _written(name: str, parameters: list[str], returns: str) -> str:
    line = f"{name}({', '.join(parameters)}){returns}"
    if len(line) > _WIDTH:
        line = f"{name}(\n" + "".join(f"    {part},\n" for part in parameters) + f"){returns}"
    return f"```python\n{line}\n```"


def _parameters(arguments: ast.arguments) -> Iterator[str]:
    """Return the parameters of a function as they are written, without `self`."""
    positional = [*arguments.posonlyargs, *arguments.args]
    missing = [None] * (len(positional) - len(arguments.defaults))
    for part, default in zip(positional, [*missing, *arguments.defaults], strict=True):
        if part.arg not in ("self", "cls"):
            yield _parameter(part, default)
    if arguments.vararg or arguments.kwonlyargs:
        yield f"*{ast.unparse(arguments.vararg)}" if arguments.vararg else "*"
    for part, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _parameter(part, default)
    if arguments.kwarg:
        yield f"**{ast.unparse(arguments.kwarg)}"


def _parameter(part: ast.arg, default: ast.expr | None) -> str:
    if default is None:
        return ast.unparse(part)
    return f"{ast.unparse(part)}{' = ' if part.annotation else '='}{ast.unparse(default)}"
