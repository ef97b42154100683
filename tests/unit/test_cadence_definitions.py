"""Cadences in definitions: their values, names and policies."""

import re
from datetime import UTC, date, datetime, time
from zoneinfo import ZoneInfo

import pytest
from headway import (
    LAST,
    App,
    Days,
    Months,
    Weeks,
    allow,
    catch_up,
    cron,
    daily,
    every,
    exclude_dates,
    exclude_days,
    exclude_range,
    exclude_times,
    fire_once,
    manual,
    monthly,
    monthly_dow,
    once,
    skip_missed,
    spaced,
    weekly,
)
from headway_decisions.firing.manifest_state import Misfire, Overlap
from headway_decisions.timing.cadence import (
    Cron,
    Daily,
    Every,
    Manual,
    Monthly,
    MonthlyDow,
    Once,
    Spaced,
    Weekly,
)
from headway_decisions.timing.calendar import (
    ExcludedDates,
    ExcludedDays,
    ExcludedRange,
    ExcludedTimes,
    Filters,
)
from headway_decisions.timing.timing import describe, next_due
from support.definitions import problems


def test_half_an_hour_is_a_whole_number_of_seconds():
    assert every(hours=0.5).cadence == Every(1800)


@pytest.mark.parametrize(
    ("when", "cadence", "name"),
    [
        (cron("@daily"), Cron("@daily"), "cron"),
        (cron("*/5 8-18 * * 1,5"), Cron("*/5 8-18 * * 1,5"), "cron"),
        (every(seconds=90), Every(90), "every"),
        (every(minutes=5), Every(300), "every"),
        (every(hours=24), Every(86_400), "every"),
        (every(days=2), Daily("00:00", 2), "every"),
        (every(days=2, at="9:30"), Daily("09:30", 2), "every"),
        (every(days=1, at="09:00"), Daily("09:00"), "every"),
        (
            every(days=3, start="2027-01-05"),
            Daily("00:00", 3, date(2027, 1, 5)),
            "every",
        ),
        (spaced(minutes=10), Spaced(600.0), "spaced"),
        (spaced(days=2), Spaced(172_800.0), "spaced"),
        (spaced(seconds=1.5), Spaced(1.5), "spaced"),
        (daily("9:00"), Daily("09:00"), "daily"),
        (daily(time(9, 0, 30)), Daily("09:00:30"), "daily"),
        (
            weekly(Days.FRI | Days.MON, "06:00"),
            Weekly(("mon", "fri"), "06:00"),
            "weekly",
        ),
        (weekly(["fri", "MON"], "06:00"), Weekly(("mon", "fri"), "06:00"), "weekly"),
        (
            weekly("mon", "06:00", every=2, start="2027-01-04"),
            Weekly(("mon",), "06:00", 2, date(2027, 1, 4)),
            "weekly",
        ),
        (monthly([LAST, 1], "00:30"), Monthly((1, "last"), "00:30"), "monthly"),
        (monthly(15, "00:30"), Monthly((15,), "00:30"), "monthly"),
        (
            monthly_dow(Weeks.FIRST | Weeks.LAST, Days.MON, "06:00"),
            MonthlyDow(("first", "last"), ("mon",), "06:00"),
            "monthly-dow",
        ),
        (once("2027-06-01 09:00"), Once("2027-06-01 09:00"), "once"),
        (once(datetime(2027, 6, 1, 9)), Once("2027-06-01 09:00"), "once"),
        (manual(), Manual(), "manual"),
    ],
)
def test_each_cadence_has_its_value_and_its_name(when, cadence, name):
    assert when.cadence == cadence
    assert when.name == name
    assert when.problems == ()
    app = App("billing")
    app.job("job")(when(lambda ctx: None))
    [manifest] = app.definitions().manifests
    assert manifest.external_id == f"job-{name}"
    assert manifest.timing == when.timing


@pytest.mark.parametrize(
    ("when", "filters"),
    [
        (daily("09:00", days=Days.WEEKDAYS), {"days": ("mon", "tue", "wed", "thu", "fri")}),
        (daily("09:00", days="weekends"), {"days": ("sat", "sun")}),
        (daily("09:00", days=["sun", Days.TUE]), {"days": ("tue", "sun")}),
        (daily("09:00", months=Months.QUARTERS), {"months": (1, 4, 7, 10)}),
        (daily("09:00", months=[4, 1]), {"months": (1, 4)}),
        (daily("09:00", months=2), {"months": (2,)}),
        (daily("09:00", weeks="last"), {"weeks": ("last",)}),
        (daily("09:00", between="8:00-17:00"), {"between": "8:00-17:00"}),
    ],
)
def test_filters_are_no_part_of_the_name(when, filters):
    assert when.timing.filters == Filters(**filters)
    assert when.name == "daily"


@pytest.mark.parametrize(
    "when",
    [
        cron("0 9 * * *", weekdays="fri"),
        every(minutes=5, weekdays="fri"),
        every(days=2, at="09:00", weekdays="fri"),
        spaced(minutes=5, weekdays="fri"),
        spaced(days=2, weekdays="fri"),
        daily("09:00", weekdays="fri"),
        weekly(["mon", "fri"], "09:00", weekdays="fri"),
        monthly(13, "09:00", weekdays="fri"),
        monthly_dow("last", "fri", "09:00", weekdays="fri"),
        once("2027-01-01 09:00", weekdays="fri"),
    ],
)
def test_weekdays_go_with_every_cadence(when):
    assert when.timing.filters == Filters(days=("fri",))
    app = App("billing")
    app.job("job")(when(lambda ctx: None))
    assert app.definitions().manifests[0].timing == when.timing


def test_weekdays_are_another_word_for_days_where_these_are_a_filter():
    assert daily("09:00", weekdays="weekends") == daily("09:00", days="weekends")
    assert every(hours=1, weekdays="mon") == every(hours=1, days="mon")
    with pytest.raises(TypeError, match="takes no keyword 'weekdays'"):
        manual(weekdays="mon")


def test_the_thirteenth_if_it_is_a_friday():
    timing = monthly(13, "09:00", weekdays="fri", tz="Europe/Berlin").timing
    found, at = [], datetime(2026, 1, 1, tzinfo=UTC)
    for _ in range(5):
        at = next_due(timing, at)
        found.append(at.astimezone(ZoneInfo("Europe/Berlin")).strftime("%Y-%m-%d %H:%M"))
    assert found == [
        "2026-02-13 09:00",
        "2026-03-13 09:00",
        "2026-11-13 09:00",
        "2027-08-13 09:00",
        "2028-10-13 09:00",
    ]
    assert describe(timing) == "monthly on the 13th day at 09:00, on Friday (Europe/Berlin)"


def test_a_restriction_that_allows_everything_is_no_filter():
    when = daily("09:00", days=Days.ALL, months=Months.ALL, weeks=Weeks.ALL)
    assert when == daily("09:00")


def test_days_are_a_step_or_a_filter():
    assert every(minutes=5, days=Days.MON).timing.filters.days == ("mon",)
    assert spaced(minutes=5, days="mon").timing.filters.days == ("mon",)
    assert every(days=2).timing.filters.days == ()


@pytest.mark.parametrize(
    "other",
    [
        daily("09:00"),
        daily("10:00"),
        daily("09:00", days="weekdays"),
        daily("09:00", tz="Europe/Berlin"),
        daily("09:00", jitter=5, misfire="skip", overlap="queue_one", enabled=False),
        daily("09:00", start="2027-01-01", end=date(2030, 1, 1), exclude=exclude_days("sun")),
        every(hours=1, name="daily"),
    ],
)
def test_a_name_is_the_kind_and_two_of_one_kind_need_names(other):
    assert other.name == "daily"
    app = App("billing")
    app.job("job")(daily("09:00")(other(lambda ctx: None)))
    assert problems(app) == [
        "job 'job' has 2 cadences called 'daily', and each needs a manifest of its own: give all "
        "but one a name=, such as name='evening', or remove them"
    ]


def test_names_do_not_depend_on_order_or_on_others():
    def ids(*cadences):
        app = App("billing")

        def body(ctx): ...

        for cadence in cadences:
            cadence(body)
        app.job("job")(body)
        return {manifest.external_id for manifest in app.definitions().manifests}

    morning, evening, hourly = daily("09:00"), daily("17:00", name="evening"), every(hours=1)
    assert ids(morning) == {"job-daily"}
    assert (
        ids(morning, evening, hourly)
        == ids(hourly, evening, morning)
        == {"job-daily", "job-evening", "job-every"}
    )


def test_a_cadence_brings_its_policies_along():
    app = App("billing")

    @app.job("job", title="The job", category="Ops")
    @daily(
        "03:15",
        tz="Europe/Berlin",
        start=datetime(2027, 1, 1, 12),
        end="2027-12-31",
        jitter=30,
        misfire=catch_up(3, threshold=5),
        overlap=allow(2),
        enabled=False,
        exclude=[
            exclude_days("sat", Days.SUN),
            exclude_dates("2027-12-24", date(2027, 5, 1)),
            exclude_range("2027-08-01", datetime(2027, 8, 14, 12)),
            exclude_times("22:00-03:00"),
        ],
    )
    def job(ctx): ...

    definitions = app.definitions()
    [manifest] = definitions.manifests
    assert manifest.timing.filters == Filters(start="2027-01-01 12:00", end="2027-12-31")
    assert manifest.timing.exclusions == (
        ExcludedDays(("sat", "sun")),
        ExcludedDates((date(2027, 5, 1), date(2027, 12, 24))),
        ExcludedRange(date(2027, 8, 1), date(2027, 8, 14)),
        ExcludedTimes("22:00-03:00"),
    )
    assert manifest.misfire == Misfire(policy="catch_up", threshold_seconds=5, limit=3)
    assert manifest.overlap == Overlap(policy="allow", limit=2)
    assert (manifest.jitter_seconds, manifest.enabled) == (30, False)
    [described] = definitions.jobs
    assert (described.title, described.category) == ("The job", "Ops")
    assert described.takes_input is False


@pytest.mark.parametrize(
    ("given", "policy"),
    [
        ({"misfire": "fire_once"}, Misfire()),
        ({"misfire": fire_once(threshold=9)}, Misfire(threshold_seconds=9)),
        ({"misfire": "skip"}, Misfire(policy="skip")),
        ({"misfire": skip_missed(threshold=9)}, Misfire(policy="skip", threshold_seconds=9)),
        ({"overlap": "skip"}, Overlap()),
        ({"overlap": "queue_one"}, Overlap(policy="queue_one")),
        ({"overlap": "cancel_running"}, Overlap(policy="cancel_running")),
    ],
)
def test_policies_by_name_and_by_value(given, policy):
    app = App("a")
    app.job("j")(lambda ctx: None)
    app.schedule("m", job="j", when=every(hours=1, **given))
    [manifest] = app.definitions().manifests
    assert policy in (manifest.misfire, manifest.overlap)
    for name in given:
        assert getattr(manifest, name) == policy


@pytest.mark.parametrize(
    ("when", "complaint"),
    [
        (daily("25:00"), "time of day '25:00' is not valid"),
        (daily("09:00", days="moon"), "'moon' is not a weekday: use mon, tue"),
        (daily("09:00", days=["mon", 3]), "3 is not a weekday"),
        (daily("09:00", weekdays="moon"), "'moon' is not a weekday: use mon, tue"),
        (daily("09:00", days="mon", weekdays="mon"), "days and weekdays are the same filter here"),
        (every(hours=1, days="mon", weekdays="fri"), "days and weekdays are the same filter here"),
        (daily("09:00", days=[]), r"days=\[\] selects nothing: name at least one, or leave it out"),
        (monthly(13, "09:00", weekdays=()), r"weekdays=\(\) selects nothing"),
        (monthly_dow("first", "mon", "09:00", weekdays="tue"), "never fires: its filters"),
        (daily("09:00", months=13), "13 is not a month"),
        (daily("09:00", weeks="fifth"), "'fifth' is not a week of a month.*did you mean 'first'"),
        (daily("09:00", between="9-17"), "time of day '9' is not valid"),
        (daily("09:00", start="soon"), "start 'soon' is not valid"),
        (daily("09:00", start=datetime(2027, 1, 1, tzinfo=UTC)), "has a zone"),
        (
            daily("09:00", exclude=exclude_dates("2027-13-01")),
            "dates holds '2027-13-01', which is not valid: use dates such as 2027-12-24",
        ),
        (
            daily("09:00", exclude=exclude_range("a", "2027-01-01")),
            "first 'a' is not a date such as",
        ),
        (daily("09:00", exclude=[exclude_days("x")]), "'x' is not a weekday"),
        (daily("09:00", exclude="sundays"), "exclude= takes exclude_days"),
        (daily("09:00", misfire="catchup"), "'catchup' is not a misfire policy"),
        (
            daily("09:00", overlap="queue"),
            "'queue' is not an overlap policy.*did you mean 'queue_one'",
        ),
        (
            daily("09:00", overlap=allow(0)),
            "overlap.limit 0 is not valid: use a whole number from 1 to 1000",
        ),
        (
            daily("09:00", misfire=catch_up(0)),
            "misfire.limit 0 is not valid: use a whole number from 1 to 1000",
        ),
        (
            daily("09:00", jitter=-1),
            "jitter -1 is not valid: use a number of seconds from 0 to 86400",
        ),
        (daily("09:00", name="my name"), "manifest id 'job-my name' is not valid"),
        (daily("03:00", exclude=exclude_times("02:00-04:00")), "never fires"),
        (every(), r"every\(0 s\) is not valid"),
        (every(hours=25), r"every\(90000 s\) is not valid"),
        (every(days=1.5), "every=1.5 is not valid: write a whole number of days"),
        (every(days=1, hours=2), r"every\(days=...\) takes no hours"),
        (every(hours=1, at="09:00"), r"every\(at=...\) goes with days="),
        (spaced(), r"spaced\(0.0 s\) is not valid"),
        (weekly([], "06:00"), "days is empty"),
        (monthly([], "06:00"), "days is empty"),
        (monthly(32, "06:00"), "32 is not a day of the month: use 1 to 31, or LAST"),
        (monthly_dow("first", None, "06:00"), "days is empty"),
        (once("2027-06-01"), "names no time"),
    ],
)
def test_an_invalid_cadence_is_reported_in_one_line(when, complaint):
    app = App("billing")
    app.job("job")(when(lambda ctx: None))
    [problem] = problems(app)
    assert re.search(complaint, problem)


def test_an_unknown_keyword_is_refused_at_once():
    with pytest.raises(TypeError, match=r"daily\(\) takes no keyword 'dayz'; did you mean 'days'"):
        daily("09:00", dayz="mon")
    with pytest.raises(TypeError, match=r"manual\(\) takes no keyword 'tz'"):
        manual(tz="UTC")
    with pytest.raises(
        TypeError, match=r"every\(\) takes no keyword 'second'; did you mean 'seconds'"
    ):
        every(second=1)
    with pytest.raises(TypeError, match=r"job\(\) takes no keyword 'max_activ'.* 'max_active'"):
        App("billing").job("job", max_activ=1)


@pytest.mark.parametrize(
    "when",
    [
        lambda: every(minutes="5"),
        lambda: spaced(hours=None),
        lambda: every(seconds=[1]),
        lambda: every(minutes=10**400),
        lambda: spaced(hours=1.5, minutes=10**400),
    ],
)
def test_a_step_that_is_no_number_is_a_problem_and_no_exception(when):
    app = App("billing")
    app.job("job")(lambda ctx: None)
    app.schedule("m", job="job", when=when())
    assert any("write a number" in problem for problem in problems(app))
