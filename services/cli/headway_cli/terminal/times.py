"""Times and ages as users write and read them."""

import re
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import click
from headway_clock import utc_now
from headway_decisions.timing.wall_clock import next_transition, wall_at

CLOCK_CHANGES = {
    "gap": "the clock goes forward that day",
    "repeated": "the clock goes back that day",
}

MOMENT_HELP = "An age such as 30m, 2h or 3d, or a time, in UTC unless it has an offset."

_CLOCK = re.compile(r"\d{1,2}:\d{2}(:\d{2})?")
_AGE = re.compile(r"(\d{1,7}(?:\.\d+)?)\s*([smhdw])", re.IGNORECASE)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def read_past(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> datetime | None:
    """Read an age such as 2h, or a time, which is UTC unless it has an offset."""
    if text is None:
        return None
    if age := _AGE.fullmatch(text.strip()):
        return shifted(utc_now(), **{_UNITS[age[2].lower()]: -float(age[1])})
    try:
        return read_moment(text, "UTC", now=utc_now(), past=True)
    except click.BadParameter as error:
        problem = f"{error.message}, or an age such as 30m, 2h or 3d"
        raise click.BadParameter(problem, context, parameter) from None


def shifted(now: datetime, **duration: float) -> datetime:
    """Return the time after a duration, or before it if it is negative."""
    try:
        return now + timedelta(**duration)
    except (OverflowError, ValueError):
        raise click.BadParameter("the duration ends outside of the years 1 to 9999.") from None


def age_text(since: datetime, now: datetime) -> str:
    """Write how long ago something was, in its two largest units."""
    seconds = max(0, int((now - since).total_seconds()))
    parts: list[str] = []
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        if seconds >= length or (unit == "s" and not parts):
            parts.append(f"{seconds // length}{unit}")
            seconds %= length
    return "".join(parts[:2])


def has_offset(text: str) -> bool:
    """Return whether a time has an offset, and so is the same in every zone."""
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def read_moment(
    text: str, zone: str, *, now: datetime, past: bool = False, ahead: bool = False
) -> datetime:
    """Read a time; a time of day is today's, with `past` the latest, with `ahead` the next."""
    place = ZoneInfo(zone)
    today = now.astimezone(place)
    try:
        if _CLOCK.fullmatch(text.strip()):
            at = time.fromisoformat(text.strip().zfill(5))
            moment = datetime.combine(today.date(), at, tzinfo=place)
            if past and moment > now:
                moment -= timedelta(days=1)
            elif ahead and moment <= now:
                moment += timedelta(days=1)
        else:
            moment = datetime.fromisoformat(text.strip())
        if moment.tzinfo in (None, place):
            return _instant(moment.replace(tzinfo=place), place)
        return moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise click.BadParameter(
            f"invalid time {text!r}: write 2027-03-28T03:15+02:00, '2027-03-28 03:15' or 03:15 "
            f"(without an offset it is {zone} time)"
        ) from error


def _instant(moment: datetime, place: ZoneInfo) -> datetime:
    """Find the instant of a wall-clock time; a skipped one is the first instant after the gap."""
    instant = moment.astimezone(UTC)
    if wall_at(place, instant) == moment.replace(tzinfo=None):
        return instant
    skipped = next_transition(place, moment.replace(fold=1).astimezone(UTC), instant)
    return instant if skipped is None else skipped.at


def shown(at: datetime | None, zone: str = "UTC") -> str:
    """Write an instant in a zone with its offset, to the second."""
    if at is None:
        return "-"
    return at.astimezone(ZoneInfo(zone)).isoformat(sep=" ", timespec="seconds")


def duration_text(started: datetime | None, finished: datetime | None) -> str:
    """Write how long a run took."""
    if started is None or finished is None:
        return "-"
    return f"{(finished - started).total_seconds():.3f} s"
