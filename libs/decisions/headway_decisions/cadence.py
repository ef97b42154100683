"""Cadences: when a manifest fires, said without a zone.

A cadence knows only the naive wall clock; `wall_clock` turns its times into instants.
"""

from datetime import datetime, timedelta
from typing import Annotated

from msgspec import Meta, Struct

from headway_decisions import cron

DAY_SECONDS = 86_400


class InvalidCadence(ValueError):
    """A cadence that cannot be kept."""


class Cron(Struct, frozen=True, tag="cron"):
    """Fires where a cron expression matches."""

    expression: str

    def next_wall(self, wall: datetime) -> datetime | None:
        """The first fire strictly after a naive wall-clock time."""
        return cron.next_match(self.expression, wall)

    @property
    def fires_in_repeated_hour(self) -> bool:
        """Whether it fires in both passings of an hour that the clock repeats."""
        return cron.has_wildcard_hour(self.expression)

    def __str__(self) -> str:
        return f"cron {self.expression}"


class Every(Struct, frozen=True, tag="every"):
    """Fires on a grid counted from each midnight of the zone."""

    seconds: Annotated[int, Meta(ge=1, le=DAY_SECONDS)]

    def next_wall(self, wall: datetime) -> datetime | None:
        """The first grid point strictly after a naive wall-clock time."""
        midnight = wall.replace(hour=0, minute=0, second=0, microsecond=0)
        steps = int((wall - midnight).total_seconds()) // self.seconds + 1
        tomorrow = midnight + timedelta(days=1)
        return min(midnight + timedelta(seconds=steps * self.seconds), tomorrow)

    @property
    def fires_in_repeated_hour(self) -> bool:
        """Steps of up to an hour go on ticking through a repeated hour."""
        return self.seconds <= 3600

    def __str__(self) -> str:
        return f"every {timedelta(seconds=self.seconds)}"


Cadence = Cron | Every


def check(cadence: Cadence) -> None:
    """Refuse a cadence that cannot be read or that never fires."""
    match cadence:
        case Cron(expression):
            try:
                cron.check(expression)
            except cron.InvalidCron as error:
                raise InvalidCadence(str(error)) from error
        case Every(seconds):
            if not isinstance(seconds, int) or not 1 <= seconds <= DAY_SECONDS:
                raise InvalidCadence(
                    f"every({seconds} s) is not valid: a step is a whole number of seconds, "
                    "between one second and a day"
                )
