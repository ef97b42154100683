"""Refuse unknown keyword arguments with a hint at the nearest known one, and bare decorators."""

from collections.abc import Callable, Collection, Iterable
from functools import wraps
from inspect import Parameter, signature
from types import FunctionType
from typing import ParamSpec, TypeVar

from headway.define.calendar import did_you_mean

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def check_keywords(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Refuse unknown keyword arguments of a function, also those of its `Unpack[...]`."""
    known = _keywords(function)
    called = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]

    @wraps(function)
    def call(*args: Arguments.args, **given: Arguments.kwargs) -> Result:
        refuse_unknown(f"{called}()", given, known)
        if [type(argument) for argument in args] == [FunctionType]:
            raise TypeError(f"@{called} needs parentheses: write @{called}(...) over the job")
        return function(*args, **given)

    return call


def refuse_unknown(called: str, given: Iterable[str], known: Collection[str]) -> None:
    """Raise `TypeError` for a keyword that is not known."""
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known) or f": use {', '.join(known)}"
            raise TypeError(f"{called} takes no keyword {name!r}{hint}")


def _keywords(function: Callable[..., object]) -> list[str]:
    found: list[str] = []
    for parameter in signature(function).parameters.values():
        if parameter.kind is Parameter.VAR_KEYWORD:
            [options] = parameter.annotation.__args__
            found += sorted(options.__optional_keys__)
        elif parameter.kind is not Parameter.VAR_POSITIONAL and parameter.name != "self":
            found.append(parameter.name)
    return found
