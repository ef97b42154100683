"""Cadences as users write them: values for the builder, and decorators for a job.

`cron("15 3 * * *", tz="Europe/Berlin")` and `every(minutes=5)` can be handed to
`App.schedule` or put over a function, several of them if need be.
"""

from collections.abc import Callable
from typing import Any, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from headway_decisions import cadence
from headway_decisions.cadence import Cadence, InvalidCadence
from msgspec import Struct

from headway import marks

Function = TypeVar("Function", bound=Callable[..., Any])


class When(Struct, frozen=True, kw_only=True):
    """A cadence in a zone. Put over a function it schedules that function."""

    cadence: Cadence
    tz: str = "UTC"
    name: str

    def __call__(self, function: Function) -> Function:
        """Schedule the job that this function is."""
        marks.of(function).cadences.append(self)
        return function

    def problem(self) -> str | None:
        """What is wrong with it, or none."""
        try:
            cadence.check(self.cadence)
            ZoneInfo(self.tz)
        except InvalidCadence as error:
            return str(error)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            return f"time zone {self.tz!r} is not known: use a name such as 'Europe/Berlin'"
        return None


def cron(expression: str, *, tz: str = "UTC", name: str | None = None) -> When:
    """Fire where a cron expression matches the wall clock of the zone.

    Five fields (minute hour day month weekday), or six with seconds first. `name` becomes
    part of the manifest's id; by default the expression does.
    """
    return When(cadence=cadence.Cron(expression), tz=tz, name=name or _cron_name(expression))


def every(
    *,
    seconds: float = 0,
    minutes: float = 0,
    hours: float = 0,
    tz: str = "UTC",
    name: str | None = None,
) -> When:
    """Fire on a wall-clock grid that is counted from each midnight of the zone."""
    step = seconds + 60 * minutes + 3600 * hours
    whole = int(step) if step == int(step) else step
    # A step that is no whole number of seconds is told with all other problems.
    return When(cadence=cadence.Every(whole), tz=tz, name=name or f"every-{_step_name(whole)}")  # type: ignore[arg-type]


_CRON_WORDS = {"*": "any", "/": "per", ",": "and", "#": "nth", "?": "any"}


def _cron_name(expression: str) -> str:
    text = "_".join(str(expression).split())
    return "cron-" + "".join(_CRON_WORDS.get(letter, letter) for letter in text)


def _step_name(seconds: float) -> str:
    for size, unit in ((3600, "h"), (60, "m")):
        if seconds and seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
