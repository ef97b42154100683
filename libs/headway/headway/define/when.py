"""When: a cadence with its filters, zone and policies, as a value and as a decorator.

The cadence of a decorated job is identified by its `name=` or, without one, by its kind: `daily`.
With the name of the job, that is the id of its manifest. Nothing else of a cadence is part of the
id, so a changed time changes the same manifest. Two cadences of one kind need a `name=`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict, TypeVar

from headway_decisions.firing.manifest_state import Overlap
from headway_decisions.timing import cadence as kinds
from headway_decisions.timing.calendar import Filters
from headway_decisions.timing.timing import Timing
from msgspec import Struct

from headway.define import calendar
from headway.define.options import MisfireGiven, OverlapGiven, marks_of, read_misfire, read_overlap

Function = TypeVar("Function", bound=Callable[..., Any])


class When(Struct, frozen=True, kw_only=True):
    """A cadence in a zone. As a decorator it schedules a job.

    `problems` are reported with those of the whole app. `None` means the default of the app.
    """

    timing: Timing
    name: str
    # A name has the threshold of the app's defaults.
    misfire: MisfireGiven = None
    overlap: Overlap | None = None
    jitter: float | None = None
    enabled: bool | None = None
    # Without a zone, `timing` gets the default zone of its app.
    tz: str | None = None
    problems: tuple[str, ...] = ()
    # Whether the timing lacks parts that could not be read.
    unreadable: bool = False

    def __call__(self, function: Function) -> Function:
        """Schedule the job of a function."""
        marks_of(function).cadences.append(self)
        return function

    @property
    def cadence(self) -> kinds.Cadence:
        """The cadence without its filters and zone."""
        return self.timing.cadence


# Stands for a cadence that could not be read, which is reported already.
UNREADABLE = When(timing=Timing(cadence=kinds.Manual()), name="unreadable", unreadable=True)


class PlainOptions(TypedDict, total=False):
    """Options of a cadence that never fires by itself."""

    name: str | None
    overlap: OverlapGiven
    enabled: bool | None


class TimedOptions(PlainOptions, total=False):
    """Options of every cadence that fires by itself."""

    weekdays: calendar.DaysGiven
    months: calendar.MonthsGiven
    between: str | None
    start: calendar.WallGiven
    end: calendar.WallGiven
    tz: str | None
    jitter: float | None
    misfire: MisfireGiven
    exclude: calendar.Excluded


class WeekOptions(TimedOptions, total=False):
    """Adds a filter on weeks of the month."""

    weeks: calendar.WeeksGiven


class DayOptions(WeekOptions, total=False):
    """Adds `days` as a synonym of `weekdays`."""

    days: calendar.DaysGiven


def read_when(given: object, called: str, problems: list[str]) -> When:
    """Return a cadence; report any other value."""
    if isinstance(given, When):
        return given
    problems.append(f"{called}: when= takes a cadence such as daily('03:15'), not {given!r}")
    return UNREADABLE


def make_when(
    kind: str, cadence: kinds.Cadence, options: Mapping[str, Any], problems: Iterable[str] = ()
) -> When:
    """Read the options of a cadence; `problems` are those of the cadence itself."""
    problems, tz = list(problems), options.get("tz")
    timing = Timing(
        cadence=cadence,
        zone="UTC" if tz is None else tz,
        filters=_filters(options, problems),
        exclusions=calendar.read_exclusions(options.get("exclude"), problems),
    )
    unreadable = bool(problems)
    misfire = options.get("misfire")
    sound = read_misfire(misfire, problems)
    name = options.get("name")
    if name is not None and not isinstance(name, str):
        problems.append(f"name {name!r} is not valid: write text")
        name = None
    return When(
        timing=timing,
        name=name or kind,
        misfire=None if sound is None else misfire,
        overlap=read_overlap(options.get("overlap"), problems),
        jitter=options.get("jitter"),
        enabled=options.get("enabled"),
        tz=tz,
        problems=tuple(problems),
        unreadable=unreadable,
    )


def _filters(options: Mapping[str, Any], problems: list[str]) -> Filters:
    if options.get("days") is not None and options.get("weekdays") is not None:
        problems.append("days and weekdays are the same filter here: use one of them")
    of_days = "weekdays" if options.get("days") is None else "days"
    filters: dict[str, Any] = {}
    for field, name, read, everything in (
        ("days", of_days, calendar.weekdays, calendar.Days),
        ("months", "months", calendar.months, calendar.Months),
        ("weeks", "weeks", calendar.weeks, calendar.Weeks),
    ):
        given, before = options.get(name), len(problems)
        chosen = read(given, problems)
        if given is not None and not chosen and len(problems) == before:
            problems.append(f"{name}={given!r} selects nothing: name at least one, or leave it out")
        # A filter with all values restricts nothing, and has the same name as no filter.
        filters[field] = () if len(chosen) == len(everything) else chosen
    return Filters(
        **filters,
        between=options.get("between"),
        start=calendar.wall_time(options.get("start"), problems),
        end=calendar.wall_time(options.get("end"), problems),
    )
