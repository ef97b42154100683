"""Times as users give them: ISO 8601, or wall-clock times in the manifest's zone."""

import re
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import click
from headway_clock import utc_now
from headway_decisions.timing.wall_clock import next_transition, wall_at

from headway_cli.terminal.ages import read_age

CLOCK_CHANGES = {
    "gap": "the clock goes forward that day",
    "repeated": "the clock goes back that day",
}

MOMENT_HELP = "An age such as 30m, 2h or 3d, or a time; without an offset in UTC."

_CLOCK = re.compile(r"\d{1,2}:\d{2}(:\d{2})?")


class PastMoment(click.ParamType[datetime]):
    """A past moment: an age such as 2h, or a time, which is UTC unless it has an offset."""

    name = "age or time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """Read it as an age if it is one, else as a time."""
        if isinstance(value, datetime):
            return value
        text = str(value)
        now = utc_now()
        age = read_age(text)
        if age is not None:
            return now - age
        try:
            return read_moment(text, "UTC", now=now, past=True)
        except click.BadParameter as error:
            self.fail(f"{error.message}, or an age such as 30m, 2h or 3d", param, ctx)


def has_offset(given: str) -> bool:
    """Whether a time says by itself which instant it means."""
    try:
        return datetime.fromisoformat(given).tzinfo is not None
    except ValueError:
        return False


def read_moment(
    given: str, zone: str, *, now: datetime, past: bool = False, ahead: bool = False
) -> datetime:
    """An instant; a time of day is today's, the latest with `past`, the next with `ahead`."""
    place = ZoneInfo(zone)
    today = now.astimezone(place)
    try:
        if _CLOCK.fullmatch(given.strip()):
            at = time.fromisoformat(given.strip().zfill(5))
            moment = datetime.combine(today.date(), at, tzinfo=place)
            if past and moment > now:
                moment -= timedelta(days=1)
            elif ahead and moment <= now:
                moment += timedelta(days=1)
        else:
            moment = datetime.fromisoformat(given.strip())
    except ValueError as error:
        raise click.BadParameter(
            f"{given!r} is no time: write 2027-03-28T03:15+02:00, '2027-03-28 03:15' or 03:15 "
            f"(without an offset it is {zone} time)"
        ) from error
    if moment.tzinfo in (None, place):
        return _instant(moment.replace(tzinfo=place), place)
    return moment.astimezone(UTC)


def _instant(moment: datetime, place: ZoneInfo) -> datetime:
    """When a clock shows a time: one that it jumps over is the first after that, as for a fire."""
    instant = moment.astimezone(UTC)
    if wall_at(place, instant) == moment.replace(tzinfo=None):
        return instant
    skipped = next_transition(place, moment.replace(fold=1).astimezone(UTC), instant)
    return instant if skipped is None else skipped.at


def shown(at: datetime | None, zone: str) -> str:
    """An instant in a zone with its offset, to the second."""
    if at is None:
        return "-"
    return at.astimezone(ZoneInfo(zone)).isoformat(sep=" ", timespec="seconds")
