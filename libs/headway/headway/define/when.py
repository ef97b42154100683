"""When: a cadence with its filters, zone and policies, as a value and as a decorator."""

from collections.abc import Callable, Mapping
from typing import Any, TypedDict, TypeVar

from headway_decisions.firing.manifest_state import Overlap
from headway_decisions.timing.cadence import Cadence
from headway_decisions.timing.calendar import Filters
from headway_decisions.timing.timing import Timing
from msgspec import Struct

from headway.define import calendar, exclusions, marks, naming, policies

Function = TypeVar("Function", bound=Callable[..., Any])
Word = TypeVar("Word")


class When(Struct, frozen=True, kw_only=True):
    """A cadence in a zone. Put over a function it schedules that function.

    What could not be read is kept in `problems`, and told with those of the whole app. None
    leaves a setting to whoever uses it.
    """

    timing: Timing
    name: str
    # By its name where the threshold was left to whoever uses it.
    misfire: policies.MisfireGiven = None
    overlap: Overlap | None = None
    jitter: float | None = None
    enabled: bool | None = None
    # The zone that it states; without one, `timing` gets the default zone of its app.
    tz: str | None = None
    problems: tuple[str, ...] = ()
    # Whether some of these are of the timing, which then lacks what could not be read.
    unreadable: bool = False

    def __call__(self, function: Function) -> Function:
        """Schedule the job that this function is."""
        marks.of(function).cadences.append(self)
        return function

    @property
    def cadence(self) -> Cadence:
        """The cadence alone."""
        return self.timing.cadence


class PlainOptions(TypedDict, total=False):
    """What even a cadence takes that never fires by itself."""

    name: str | None
    overlap: policies.OverlapGiven
    enabled: bool | None


class TimedOptions(PlainOptions, total=False):
    """What every cadence takes that fires by itself."""

    weekdays: calendar.DaysGiven
    months: calendar.MonthsGiven
    between: str | None
    start: calendar.WallGiven
    end: calendar.WallGiven
    tz: str | None
    jitter: float | None
    misfire: policies.MisfireGiven
    exclude: exclusions.Excluded


class WeekOptions(TimedOptions, total=False):
    """The same with a filter on weeks of the month."""

    weeks: calendar.WeeksGiven


class DayOptions(WeekOptions, total=False):
    """The same where `days` are free to be another word for `weekdays`."""

    days: calendar.DaysGiven


def refuse_unknown(function: str, given: Mapping[str, Any], accepted: type) -> None:
    """Raise for a keyword that a function does not take, as Python itself would."""
    known: frozenset[str] = accepted.__optional_keys__  # type: ignore[attr-defined]
    for name in given:
        if name not in known:
            hint = calendar.did_you_mean(name, known)
            raise TypeError(f"{function}() takes no keyword {name!r}{hint}")


def read_when(given: object, called: str, problems: list[str]) -> When | None:
    """A cadence that was handed to the builder; anything else is a problem."""
    if isinstance(given, When):
        return given
    problems.append(f"{called}: when= takes a cadence such as daily('03:15'), not {given!r}")
    return None


def make_when(cadence: Cadence, options: Mapping[str, Any], problems: list[str]) -> When:
    """A cadence with its options read; `problems` are those of the cadence itself."""
    tz = options.get("tz")
    timing = Timing(
        cadence=cadence,
        zone="UTC" if tz is None else tz,
        filters=_filters(options, problems),
        exclusions=exclusions.read(options.get("exclude"), problems),
    )
    unreadable = bool(problems)
    misfire = options.get("misfire")
    sound = policies.read_misfire(misfire, problems)
    return When(
        timing=timing,
        name=_name(options.get("name"), problems) or naming.name_of(timing),
        misfire=None if sound is None else misfire,
        overlap=policies.read_overlap(options.get("overlap"), problems),
        jitter=options.get("jitter"),
        enabled=options.get("enabled"),
        tz=tz,
        problems=tuple(problems),
        unreadable=unreadable,
    )


def _name(given: object, problems: list[str]) -> str | None:
    if given is None or isinstance(given, str):
        return given
    problems.append(f"name {given!r} is not valid: write text")
    return None


def _filters(options: Mapping[str, Any], problems: list[str]) -> Filters:
    if options.get("days") is not None and options.get("weekdays") is not None:
        problems.append("days and weekdays are the same filter here: state one of them")
    of_days = "weekdays" if options.get("days") is None else "days"
    days = _chosen(calendar.weekdays, of_days, options, problems)
    months = _chosen(calendar.months, "months", options, problems)
    weeks = _chosen(calendar.weeks, "weeks", options, problems)
    return Filters(
        # All of them restrict nothing, as none do: one thing has one spelling.
        days=() if len(days) == len(calendar.Days) else days,
        months=() if len(months) == len(calendar.Months) else months,
        weeks=() if len(weeks) == len(calendar.Weeks) else weeks,
        between=options.get("between"),
        start=calendar.wall_time(options.get("start"), problems),
        end=calendar.wall_time(options.get("end"), problems),
    )


def _chosen(
    read: Callable[[object, list[str]], tuple[Word, ...]],
    name: str,
    options: Mapping[str, Any],
    problems: list[str],
) -> tuple[Word, ...]:
    """What a filter lets pass; one that is stated and names nothing was hardly meant so."""
    given, before = options.get(name), len(problems)
    chosen = read(given, problems)
    if given is not None and not chosen and len(problems) == before:
        problems.append(f"{name}={given!r} names none: name at least one, or leave it out")
    return chosen
