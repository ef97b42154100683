"""Options of jobs and manifests as users write them, read into the terms of work.

    @app.job("sync", rate="100/minute", timeout=60, concurrency_key="customer:{input.id}")
    @every(minutes=5, misfire=skip_missed(), overlap="queue_one")
    @retry(attempts=3, interval=60)

Decorators only leave marks on a function, which the app reads later, so they may stand in any
order.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, TypedDict, TypeVar, get_args

from headway_contract.fields import Rate
from headway_contract.fitting import show
from headway_contract.work import RetryPolicy, WorkTerms
from headway_decisions.capacity import rates
from headway_decisions.firing.manifest_state import MOST_CAUGHT_UP, Misfire, Overlap
from msgspec import Struct
from msgspec.structs import replace

from headway.define.calendar import did_you_mean
from headway.define.keywords import check_keywords

Function = TypeVar("Function", bound=Callable[..., Any])

Kind = type[BaseException] | str
Kinds = Iterable[Kind] | Kind

_ATTRIBUTE = "__headway_marks__"


@dataclass
class Marks:
    """The marks that decorators leave on a function."""

    # Values of `When`, which add themselves.
    cadences: list[Any] = field(default_factory=list)
    retry: "Retry | None" = None
    is_job: bool = False


def lacks_job(value: object) -> bool:
    """Return whether a value is a function with a cadence that no app declares as a job."""
    marks: Marks | None = getattr(value, "__dict__", {}).get(_ATTRIBUTE)
    return marks is not None and bool(marks.cadences) and not marks.is_job


def marks_of(function: Callable[..., Any]) -> Marks:
    """Return the marks of a function; add empty marks if it has none."""
    marks: Marks | None = function.__dict__.get(_ATTRIBUTE)
    if marks is None:
        marks = Marks()
        setattr(function, _ATTRIBUTE, marks)
    return marks


class Retry(Struct, frozen=True):
    """A retry policy: as a decorator for a job, as an argument for a manifest."""

    stated: dict[str, Any]

    def over(self, weaker: RetryPolicy) -> RetryPolicy:
        """Return the policy, completed by a weaker one."""
        return replace(weaker, **self.stated)

    def __call__(self, function: Function) -> Function:
        """Set the retry policy of a job."""
        marks_of(function).retry = self
        return function


@check_keywords
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
    """Set the number of attempts, and the delays between them in seconds.

    `None` means the app's default. The built-in defaults are 3 attempts and a delay of 60 s that
    doubles up to an hour, with a random extension of up to 10 %. `max_interval` limits only the
    growth: it never shortens `interval`.

    `retry_on` lists the only failures that are retried, `abort_on` failures that are not:
    exceptions or their names, including subclasses, or a kind of Headway such as "timed_out".
    `abort_on` wins over `retry_on`.
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
    single = isinstance(given, str | type) or not isinstance(given, Iterable)
    kinds: Any = [given] if single else given
    names = []
    for kind in kinds:
        if not isinstance(kind, str) and not (
            isinstance(kind, type) and issubclass(kind, BaseException)
        ):
            raise TypeError(f"{called} takes exceptions or their names, and {kind!r} is neither")
        names.append(kind if isinstance(kind, str) else kind.__name__)
    return tuple(names)


MisfireGiven = Misfire | Literal["fire_once", "skip"] | None
Policy = TypeVar("Policy", Misfire, Overlap)
_OverlapName = Literal["skip", "queue_one", "cancel_running"]
OverlapGiven = Overlap | _OverlapName | None
_OVERLAPS = {name: Overlap(policy=name) for name in get_args(_OverlapName)}


@check_keywords
def fire_once(*, threshold: float = 60.0) -> Misfire:
    """Fire once for all missed fire times; this is the default."""
    return Misfire(policy="fire_once", threshold_seconds=threshold)


@check_keywords
def skip_missed(*, threshold: float = 60.0) -> Misfire:
    """Skip missed fire times, unless the latest is no older than the threshold in seconds."""
    return Misfire(policy="skip", threshold_seconds=threshold)


@check_keywords
def catch_up(most: int, *, threshold: float = 60.0) -> Misfire:
    """Fire for the last `most` missed fire times, as many at once as may overlap.

    Use it only for idempotent jobs: replayed fires create reports again and send mails again.
    """
    return Misfire(policy="catch_up", threshold_seconds=threshold, limit=most)


@check_keywords
def allow(most: int) -> Overlap:
    """Allow up to `most` concurrent pieces of work of a manifest."""
    return Overlap(policy="allow", limit=most)


def read_misfire(given: object, problems: list[str], *, threshold: float = 60.0) -> Misfire | None:
    """Read a misfire policy, by name or as a value; a name gets the threshold."""
    known = {"fire_once": fire_once(threshold=threshold), "skip": skip_missed(threshold=threshold)}
    expected = "a misfire policy: use 'fire_once', 'skip' or catch_up(n)"
    return _read_policy(given, known, expected, problems)


def parse_misfire(text: str, *, threshold: float = 60.0) -> Misfire:
    """Read a misfire policy from a setting: `fire_once`, `skip` or `catch_up:5`."""
    named = read_misfire(text, [], threshold=threshold)
    if named is not None:
        return named
    found = re.fullmatch(r"catch_up:([0-9]{1,9})", text)
    if found is not None and 1 <= int(found[1]) <= MOST_CAUGHT_UP:
        return catch_up(int(found[1]), threshold=threshold)
    raise ValueError(
        f"{text!r} is not a misfire policy: write fire_once, skip, or catch_up:5 with a number "
        f"from 1 to {MOST_CAUGHT_UP}"
    )


def read_overlap(given: object, problems: list[str]) -> Overlap | None:
    """Read an overlap policy, by name or as a value."""
    expected = "an overlap policy: use 'skip', 'queue_one', 'cancel_running' or allow(n)"
    return _read_policy(given, _OVERLAPS, expected, problems)


def _read_policy(
    given: object, known: dict[str, Policy], expected: str, problems: list[str]
) -> Policy | None:
    kind = type(next(iter(known.values())))
    if given is None or isinstance(given, kind):
        return given
    if isinstance(given, str) and given in known:
        return known[given]
    problems.append(f"{given!r} is not {expected}{did_you_mean(given, known)}")
    return None


RateGiven = Rate | str | None
SecondsGiven = float | timedelta | None


def read_rate(given: object, problems: list[str]) -> Rate | None:
    """Read a rate, as text or as a value."""
    if given is None or isinstance(given, Rate):
        return given
    problem = f"{given!r} is not a rate: write it like '100/minute' or '5/10 seconds'"
    if isinstance(given, str):
        try:
            return rates.parse_rate(given)
        except ValueError as error:
            problem = str(error)
    problems.append(problem)
    return None


# The field of the terms of work that each option sets: `timeout=60` sets `timeout_seconds`.
FIELDS = {field.removesuffix("_seconds"): field for field in WorkTerms.__struct_fields__}


class WorkOptions(TypedDict, total=False):
    """Options of jobs and manifests; `None` means the default."""

    priority: int | None
    timeout: float | None
    cancel_grace: float | None
    on_lost_contact: Literal["stop", "continue"] | None
    on_dead_letter: Literal["block", "go_on"] | None
    concurrency_key: str | None
    concurrency_limit: int | None
    start_within: SecondsGiven


def read_options(given: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    """Return the terms of work that options set, by field; ignore all other options."""
    stated = {field: given[option] for option, field in FIELDS.items() if option in given}
    if (seconds := stated.get("start_within_seconds")) is not None:
        stated["start_within_seconds"] = _read_seconds("start_within", seconds, problems)
    if not isinstance(stated.get("retry"), Retry | RetryPolicy | None):
        retry = stated.pop("retry")
        problems.append(f"retry={retry!r} is not a retry policy: write retry=retry(attempts=...)")
    return {field: value for field, value in stated.items() if value is not None}


def _read_seconds(option: str, given: object, problems: list[str]) -> float | None:
    if isinstance(given, timedelta):
        return given.total_seconds()
    if isinstance(given, int | float) and not isinstance(given, bool):
        with suppress(OverflowError):
            return float(given)
    problems.append(f"{option}={show(given)} is not a duration: write a number of seconds")
    return None


def resolve_retry(stated: Mapping[str, Any], usual: RetryPolicy) -> dict[str, Any]:
    """Complete a partial retry policy with the usual one."""
    retry = stated.get("retry")
    return {**stated, "retry": retry.over(usual)} if isinstance(retry, Retry) else {**stated}
