"""Cadences, filters and exclusions of every kind, and instants to look at them from."""

from datetime import UTC, date, datetime

from headway_decisions.timing.cadence import (
    Cron,
    Daily,
    Every,
    Monthly,
    MonthlyDow,
    Weekly,
)
from headway_decisions.timing.calendar import (
    ExcludedDates,
    ExcludedDays,
    ExcludedRange,
    ExcludedTimes,
    Filters,
)

BERLIN = "Europe/Berlin"


def at(text):
    return datetime.fromisoformat(text).astimezone(UTC)


FILTERS = [
    Filters(),
    Filters(between="01:30-03:30"),
    Filters(between="22:00-02:30", days=("sat", "sun")),
    Filters(weeks=("last",), months=(3, 10, 11)),
    Filters(start="2011-12-30", end="2027-10-31 02:30"),
]


EXCLUSIONS = [
    (),
    (ExcludedDays(("sat",)),),
    (ExcludedTimes("02:15-02:45"),),
    (ExcludedTimes("23:00-01:00"), ExcludedDates((date(2027, 10, 31), date(2011, 12, 31)))),
    (ExcludedRange(date(2018, 11, 1), date(2018, 11, 4)), ExcludedDays(("mon", "tue"))),
]


CADENCES = [
    Every(900),
    Every(7200),
    Cron("*/20 2 * * *"),
    Cron("10 * * * *"),
    Daily("02:30"),
    Weekly(("sun", "fri"), "00:00", every=2),
    Monthly((1, 31, "last"), "02:30"),
    MonthlyDow(("first", "last"), ("sun",), "01:15"),
]
