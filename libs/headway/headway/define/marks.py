"""What decorators leave on a function until the app reads it.

Decorators only take notes, so they may stand in any order above a function.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from headway_contract.work import RetryPolicy
from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from headway.define.when import When

Function = TypeVar("Function", bound=Callable[..., Any])

Kind = type[BaseException] | str
Kinds = Iterable[Kind] | Kind

_ATTRIBUTE = "__headway_marks__"


@dataclass
class Marks:
    """The notes on one function."""

    cadences: "list[When]" = field(default_factory=list)
    retry: "Retry | None" = None


def of(function: Callable[..., Any]) -> Marks:
    """The notes on a function, made if there are none yet."""
    marks: Marks | None = function.__dict__.get(_ATTRIBUTE)
    if marks is None:
        marks = Marks()
        setattr(function, _ATTRIBUTE, marks)
    return marks


class Retry(Struct, frozen=True):
    """A retry policy: over a function it is that job's, in the builder that manifest's."""

    stated: dict[str, Any]

    @property
    def policy(self) -> RetryPolicy:
        """The policy where nobody has defaults of their own."""
        return self.over(RetryPolicy())

    def over(self, weaker: RetryPolicy) -> RetryPolicy:
        """The policy; what was not stated is the weaker one's."""
        return replace(weaker, **self.stated)

    def __call__(self, function: Function) -> Function:
        """Retry the job that this function is in this way."""
        of(function).retry = self
        return function


def retry(
    *,
    attempts: int | None = None,
    interval: float | None = None,
    backoff: float | None = None,
    max_interval: float | None = None,
    jitter: float | None = None,
    retry_on: Kinds = (),
    abort_on: Kinds = (),
) -> Retry:
    """How often a job is tried in total, and how long it rests between, in seconds.

    What is left out is the app's default, or else 3 attempts with a rest of 60 s that doubles up
    to an hour, each up to a tenth longer by chance. `max_interval` bounds the growth: it never
    shortens the interval itself.

    With `retry_on` only failures of these kinds are tried again, with `abort_on` all but
    these: exceptions or their names, subclasses included, or a kind of Headway's own such as
    "timed_out". What is on both lists is not tried again.
    """
    stated = {
        "attempts": attempts,
        "interval_seconds": interval,
        "backoff": backoff,
        "max_interval_seconds": max_interval,
        "jitter": jitter,
        "retry_on": _kinds("retry_on", retry_on) or None,
        "abort_on": _kinds("abort_on", abort_on) or None,
    }
    return Retry({name: value for name, value in stated.items() if value is not None})


def _kinds(called: str, given: Kinds) -> tuple[str, ...]:
    if isinstance(given, str | type) or not isinstance(given, Iterable):
        return (_kind(called, given),)
    return tuple(_kind(called, kind) for kind in given)


def _kind(called: str, given: object) -> str:
    match given:
        case str():
            return given
        case type() if issubclass(given, BaseException):
            return given.__name__
    raise TypeError(f"{called} takes exceptions or their names, and {given!r} is neither")
