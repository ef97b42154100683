"""Preview of fire times: the requested number, with excluded times folded."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

from headway_contract.manifests import FireTime
from headway_decisions.firing import jitter
from headway_decisions.timing.cadence import Daily, Every, Spaced
from headway_decisions.timing.calendar import ExcludedDays, ExcludedRange, ExcludedTimes, Exclusion
from headway_decisions.timing.timing import Timing
from headway_scheduler.fire import preview as preview_module
from headway_scheduler.fire.preview import note_of, previewed

NOW = datetime(2027, 12, 24, 0, 0, 30, tzinfo=UTC)
FORTNIGHT = ExcludedRange(date(2027, 12, 24), date(2028, 1, 6))


def preview(
    cadence: Any, *exclusions: Exclusion, zone: str = "UTC", **options: Any
) -> list[FireTime]:
    row = {"external_id": "m", "next_due_at": None, "jitter_seconds": 0}
    kept = Timing(cadence=cadence, zone=zone, exclusions=exclusions)
    return previewed(row, kept, **{"count": 20, "after": None, "now": NOW, **options})


def test_excluded_times_do_not_use_up_the_count():
    run, *fires = preview(Every(60), FORTNIGHT)
    assert (run.due_at, run.excluded) == (
        datetime(2027, 12, 24, 0, 1, tzinfo=UTC),
        "from 2027-12-24 to 2028-01-06",
    )
    assert (run.until, run.times) == (datetime(2028, 1, 6, 23, 59, tzinfo=UTC), 14 * 1440 - 1)
    begins = datetime(2028, 1, 7, tzinfo=UTC)
    assert [fire.due_at for fire in fires] == [begins + timedelta(minutes=n) for n in range(20)]
    assert all(fire.excluded is None and fire.times == 1 for fire in fires)


def test_a_single_excluded_time_is_listed():
    fires = preview(Daily("12:00"), ExcludedDays(("sun",)), count=3)
    assert [(fire.due_at.day, fire.excluded, fire.until, fire.times) for fire in fires] == [
        (24, None, None, 1),
        (25, None, None, 1),
        (26, "on Sunday", None, 1),
        (27, None, None, 1),
    ]


def test_exclusions_that_follow_each_other_are_one_run_with_all_their_names():
    [first, run, last] = preview(
        Every(3600),
        ExcludedTimes("23:00-01:00"),
        ExcludedDays(("sat", "sun")),
        count=2,
        after=datetime(2027, 12, 24, 21, 30, tzinfo=UTC),
    )
    assert (first.due_at.hour, last.due_at) == (22, datetime(2027, 12, 27, 1, tzinfo=UTC))
    assert run.excluded == "between 23:00-01:00 and on Saturday or Sunday"
    assert (run.until, run.times) == (datetime(2027, 12, 27, tzinfo=UTC), 50)


def test_times_that_are_excluded_for_good_are_one_line():
    [run] = preview(Daily("12:00"), ExcludedRange(date(2027, 1, 1), date(9999, 12, 31)))
    assert run.until is not None
    assert run.until > NOW + timedelta(days=3650)
    assert run.times == (run.until - run.due_at).days + 1


def test_more_than_anybody_counts_are_not_counted(monkeypatch):
    monkeypatch.setattr(preview_module, "_MOST_COUNTED", 1000)
    years = ExcludedRange(date(2027, 1, 1), date(2036, 12, 31))
    [run, fire] = preview(Every(1), years, zone="Europe/Berlin", count=1)
    assert (run.times, run.until) == (0, fire.due_at - timedelta(seconds=1))


def test_each_due_time_is_listed_on_request():
    fires = preview(Every(60), FORTNIGHT, each=True)
    assert len(fires) == 20
    assert all(fire.excluded and fire.until is None for fire in fires)


def test_a_spaced_cadence_is_listed_with_its_jitter():
    row = {
        "external_id": "m",
        "trouble": None,
        "depends_on": None,
        "outstanding": 0,
        "next_due_at": NOW,
        "jitter_seconds": 600,
    }
    fires_at = jitter.draw_jitter("m", NOW, 600)
    assert fires_at > NOW
    note = note_of(row, Timing(cadence=Spaced(3600)), None, has_times=False)
    assert note.startswith(f"it fires next at {fires_at:%Y-%m-%d %H:%M:%S} UTC, ")
