"""A month of one manifest as a grid of weeks, in the zone of the manifest. Pure."""

import calendar
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from headway_contract.manifests import FireTime
from msgspec import Struct

from headway_console.pages.filters import tint, words
from headway_console.reading.occurrences import DayCount, Past, Stretch

# Limit of counted future fires.
MAX_COMING = 1000
# The worst of a day colours it.
_ORDER = ("bad", "warn", "busy", "good", "")


class Day(Struct, frozen=True, kw_only=True):
    """A day; `coming` counts future fires, and is a lower bound if `is_cut`."""

    day: date
    in_month: bool
    is_today: bool
    tint: str
    marks: list[DayCount]
    coming: int
    is_cut: bool = False

    @property
    def label(self) -> str:
        """Write the day for screen readers."""
        parts = [_text(mark) for mark in self.marks]
        if self.is_cut:
            parts.append(
                f"{self.coming} or more to come" if self.coming else "more than was counted"
            )
        elif self.coming:
            parts.append(f"{self.coming} to come")
        return f"{self.day:%d %B}: {', '.join(parts) or 'nothing'}"


class Month(Struct, frozen=True, kw_only=True):
    """The grid, and the adjacent months; fires are counted until `counted_until`."""

    first: date
    before: str
    after: str
    weeks: list[list[Day]]
    counted_until: datetime | None = None


def parse_day(text: str | None, form: str) -> date | None:
    """Parse a date of the URL; `None` if it is invalid or far away."""
    try:
        found = datetime.strptime(text or "", form).replace(tzinfo=UTC).date()
    except ValueError:
        return None
    return found if 2000 <= found.year <= 2199 else None


def first_of(text: str | None, *, today: date) -> date:
    """Return the first day of the month in the URL (`2027-03`), or of this month."""
    return (parse_day(text, "%Y-%m") or today).replace(day=1)


def start_of_day(day: date, zone: ZoneInfo) -> datetime:
    """Return the start of a day in a zone."""
    return datetime.combine(day, time(), tzinfo=zone).astimezone(UTC)


def span(first: date, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """Return the start and the end of the grid of a month."""
    weeks = calendar.Calendar().monthdatescalendar(first.year, first.month)
    return start_of_day(weeks[0][0], zone), start_of_day(weeks[-1][-1] + timedelta(days=1), zone)


def grid(
    first: date, zone: ZoneInfo, past: Past, coming: Sequence[FireTime], *, today: date
) -> Month:
    """Build the grid; after `MAX_COMING` future fires the rest is not counted."""
    marks = _marks(past, coming, zone)
    end = coming[-1].due_at if len(coming) >= MAX_COMING else None
    cut_from = date.max if end is None else end.astimezone(zone).date()
    counts = Counter(_day_of(fire, zone) for fire in coming if not fire.excluded)
    weeks = calendar.Calendar().monthdatescalendar(first.year, first.month)
    return Month(
        first=first,
        before=f"{first - timedelta(days=1):%Y-%m}",
        after=f"{first + timedelta(days=31):%Y-%m}",
        counted_until=end if cut_from <= weeks[-1][-1] else None,
        weeks=[
            [
                Day(
                    day=day,
                    in_month=day.month == first.month,
                    is_today=day == today,
                    tint=min(
                        (tint(mark.state) for mark in marks[day]), key=_ORDER.index, default=""
                    ),
                    marks=marks[day],
                    coming=counts[day],
                    is_cut=day >= cut_from,
                )
                for day in week
            ]
            for week in weeks
        ],
    )


def _text(mark: DayCount) -> str:
    why = f" ({words(mark.reason)})" if mark.reason else ""
    return f"{'all day' if mark.fires is None else mark.fires} {words(mark.state)}{why}"


def _marks(
    past: Past, coming: Sequence[FireTime], zone: ZoneInfo
) -> defaultdict[date, list[DayCount]]:
    """Return the results of the past, and the excluded future times, by day."""
    skipped = [
        DayCount(day=day, state=stretch.state, reason=stretch.reason, fires=None)
        for stretch in past.stretches
        for day in _days_of(stretch, zone)
    ]
    excluded = Counter((_day_of(fire, zone), fire.excluded) for fire in coming if fire.excluded)
    counts = [
        DayCount(day=day, state="excluded", reason=why, fires=fires)
        for (day, why), fires in excluded.items()
    ]
    found: defaultdict[date, list[DayCount]] = defaultdict(list)
    for mark in (*past.days, *skipped, *counts):
        if mark not in found[mark.day]:
            found[mark.day].append(mark)
    return found


def _day_of(fire: FireTime, zone: ZoneInfo) -> date:
    return fire.due_at.astimezone(zone).date()


def _days_of(stretch: Stretch, zone: ZoneInfo) -> Iterable[date]:
    day, last = (at.astimezone(zone).date() for at in (stretch.first_due_at, stretch.last_due_at))
    # A grid has six weeks; earlier days are not shown.
    day = max(day, last - timedelta(days=400))
    while day <= last:
        yield day
        day += timedelta(days=1)
