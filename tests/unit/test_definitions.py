"""What an app declares, and what it is told about its mistakes."""

import math
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time

import msgspec
import pytest
from headway import (
    LAST,
    App,
    Days,
    InvalidDefinitions,
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
    retry,
    skip_missed,
    spaced,
    weekly,
)
from headway_contract import InvalidName
from headway_contract.work import RetryPolicy
from headway_decisions.cadence import (
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
from headway_decisions.calendar import (
    ExcludedDates,
    ExcludedDays,
    ExcludedRange,
    ExcludedTimes,
    Filters,
)
from headway_decisions.policies import Misfire, Overlap


class Customer(msgspec.Struct):
    id: int
    name: str


@dataclass
class Invoice:
    number: int


def problems(app: App) -> list[str]:
    with pytest.raises(InvalidDefinitions) as caught:
        app.definitions()
    return caught.value.problems


def test_a_decorated_job_becomes_a_manifest_whose_id_carries_the_cadence():
    app = App("billing")

    @app.job("cleanup", group="ops", description="Tidies up.", priority=3, timeout=60)
    @cron("15 3 * * *", tz="Europe/Berlin")
    @retry(attempts=5, interval=1)
    async def cleanup(ctx): ...

    [manifest] = app.definitions().manifests
    assert manifest.external_id == "cleanup-cron-15_3_any_any_any"
    assert manifest.timing.cadence == Cron("15 3 * * *")
    assert (manifest.timing.zone, manifest.group, manifest.priority) == ("Europe/Berlin", "ops", 3)
    assert manifest.retry == RetryPolicy(attempts=5, interval_seconds=1)
    assert manifest.timeout_seconds == 60


def test_decorators_stack_and_may_stand_above_the_job():
    app = App("billing")

    @every(minutes=5)
    @cron("0 * * * *", name="hourly")
    @app.job("sync")
    def sync(ctx): ...

    assert {one.external_id for one in app.definitions().manifests} == {
        "sync-every-5m",
        "sync-hourly",
    }


def test_a_scheduled_job_gets_its_input_checked_and_turned_into_json():
    app = App("billing")

    @app.job("sync")
    def sync(ctx, customer: Customer): ...

    @app.job("bill")
    def bill(ctx, invoice: Invoice): ...

    @app.job("anything")
    def anything(ctx, thing): ...

    app.schedule("sync-ada", job=sync, when=every(hours=1), input=Customer(1, "Ada"))
    app.schedule("bill-7", job="bill", when=every(hours=1), input=Invoice(7))
    app.schedule("list", job=anything, when=every(hours=1), input=[1, [2]])
    definitions = app.definitions()
    assert [one.input for one in definitions.manifests] == [
        {"id": 1, "name": "Ada"},
        {"number": 7},
        [1, [2]],
    ]
    assert definitions.manifests[0].timing.cadence == Every(3600)
    assert definitions.jobs[0].input_schema is not None
    assert definitions.jobs[2].input_schema is None


def test_an_equal_definition_has_an_equal_fingerprint_and_a_changed_one_has_not():
    def build(tz: str):
        app = App("billing")
        app.job("sync")(lambda ctx: None)
        app.schedule("nightly", job="sync", when=cron("0 3 * * *", tz=tz))
        return app.definitions().manifests[0].fingerprint()

    assert build("UTC") == build("UTC")
    assert build("UTC") != build("Europe/Berlin")


def test_every_problem_is_told_at_once():
    app = App("billing")

    @app.job("sync")
    def sync(ctx, customer: Customer): ...

    @app.job("bad name")
    def bad(ctx): ...

    @app.job("sync-nothing")
    def nothing(ctx): ...

    @app.job("anything")
    def anything(ctx, thing): ...

    @app.job("infinite")
    @retry(max_interval=math.inf)
    def infinite(ctx): ...

    @app.job("nul-words", description="a\x00b")
    def nul_words(ctx): ...

    @app.job("greedy")
    def greedy(ctx, one, two): ...

    @app.job("slow", timeout=10 * 86_400)
    @every(hours=1)
    def slow(ctx): ...

    app.group("dotted.name")
    app.group("ops", max_active=-1, priority=99)
    app.schedule("twice", job="sync-nothing", when=every(hours=1))
    app.schedule("twice", job="sync-nothing", when=every(hours=2))
    app.schedule("wrong-cron", job="sync-nothing", when=cron("61 * * * *"))
    app.schedule("never", job="sync-nothing", when=cron("0 0 30 2 *"))
    app.schedule("wrong-zone", job="sync-nothing", when=every(hours=1, tz="Mars/Base"))
    app.schedule("nobody", job="undeclared", when=every(hours=1))
    app.schedule("wrong-input", job=sync, when=every(hours=1), input={"id": "x"})
    app.schedule("no-input", job="sync-nothing", when=every(hours=1), input=1)
    app.schedule("nul-input", job="anything", when=every(hours=1), input="a\x00")
    app.schedule("infinite", job="infinite", when=every(hours=1))
    app.schedule("fraction", job="anything", when=every(minutes=1.01), input=1)
    app.schedule("surrogate", job="anything", when=every(hours=1), input="\ud800")
    app.schedule("with space", job="sync-nothing", when=every(hours=1))
    found = "\n".join(problems(app))
    for expected in (
        "job name 'bad name'",
        "must take a context and at most one input",
        "manifest 'slow-every-1h': Expected `float` <= 302400.0",
        "group name 'dotted.name'",
        "group 'ops': Expected `int` >= 0",
        "two manifests have the id 'twice'",
        "'61 * * * *' is not valid",
        "manifest 'never'",
        "time zone 'Mars/Base'",
        "'undeclared', which nobody declared",
        "manifest 'wrong-input': its input does not fit job 'sync'",
        "takes no input",
        "manifest 'nul-input': it holds a NUL",
        "manifest 'infinite': Expected `float`",
        "every(60.6 s)",
        "job 'nul-words': it holds a NUL",
        "manifest 'surrogate'",
        "manifest id 'with space'",
    ):
        assert expected in found
    assert len(problems(app)) == 20, "terms of a job are told with the job and with its manifests"


def test_half_an_hour_is_a_whole_number_of_seconds():
    assert every(hours=0.5).cadence == Every(1800)
    assert every(hours=0.5).name == "every-30m"


def test_text_about_a_nul_is_no_nul():
    app = App("billing")
    app.job("job")(lambda ctx, thing: None)
    app.schedule("fine", job="job", when=every(hours=1), input="\\u0000")
    assert app.definitions().manifests[0].input == "\\u0000"


def test_an_app_s_own_name_is_checked():
    with pytest.raises(InvalidName, match="app name"):
        App("my app")


def test_groups_are_those_stated_and_those_used():
    app = App("billing")
    app.group("ops", max_active=2)

    @app.job("sync")
    @every(hours=1)
    def sync(ctx): ...

    assert {group.name: group.max_active for group in app.definitions().groups} == {
        "ops": 2,
        "sync": None,
    }


@pytest.mark.parametrize(
    ("when", "cadence", "name"),
    [
        (cron("*/5 8-18 * * 1,5"), Cron("*/5 8-18 * * 1,5"), "cron-anyper5_8-18_any_any_1and5"),
        (every(seconds=90), Every(90), "every-90s"),
        (every(minutes=5), Every(300), "every-5m"),
        (every(hours=24), Every(86_400), "every-24h"),
        (every(days=2), Daily("00:00", 2), "every-2d"),
        (every(days=2, at="9:30"), Daily("09:30", 2), "every-2d-09-30"),
        (every(days=1, at="09:00"), Daily("09:00"), "daily-09-00"),
        (
            every(days=3, start="2027-01-05"),
            Daily("00:00", 3, date(2027, 1, 5)),
            "every-3d",
        ),
        (spaced(minutes=10), Spaced(600.0), "spaced-10m"),
        (spaced(days=2), Spaced(172_800.0), "spaced-2d"),
        (spaced(seconds=1.5), Spaced(1.5), "spaced-1_5s"),
        (daily("9:00"), Daily("09:00"), "daily-09-00"),
        (daily(time(9, 0, 30)), Daily("09:00:30"), "daily-09-00-30"),
        (
            weekly(Days.FRI | Days.MON, "06:00"),
            Weekly(("mon", "fri"), "06:00"),
            "weekly-mon-fri-06-00",
        ),
        (weekly(["fri", "MON"], "06:00"), Weekly(("mon", "fri"), "06:00"), "weekly-mon-fri-06-00"),
        (
            weekly("mon", "06:00", every=2, start="2027-01-04"),
            Weekly(("mon",), "06:00", 2, date(2027, 1, 4)),
            "weekly-mon-06-00-every-2",
        ),
        (monthly([LAST, 1], "00:30"), Monthly((1, "last"), "00:30"), "monthly-01-last-00-30"),
        (monthly(15, "00:30"), Monthly((15,), "00:30"), "monthly-15-00-30"),
        (
            monthly_dow(Weeks.FIRST | Weeks.LAST, Days.MON, "06:00"),
            MonthlyDow(("first", "last"), ("mon",), "06:00"),
            "monthly-dow-first-last-mon-06-00",
        ),
        (once("2027-06-01 09:00"), Once("2027-06-01 09:00"), "once-2027-06-01-09-00"),
        (once(datetime(2027, 6, 1, 9)), Once("2027-06-01 09:00"), "once-2027-06-01-09-00"),
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
    ("when", "filters", "name"),
    [
        (
            daily("09:00", days=Days.WEEKDAYS),
            {"days": ("mon", "tue", "wed", "thu", "fri")},
            "weekdays",
        ),
        (daily("09:00", days="weekends"), {"days": ("sat", "sun")}, "weekends"),
        (daily("09:00", days=["sun", Days.TUE]), {"days": ("tue", "sun")}, "tue-sun"),
        (daily("09:00", months=Months.QUARTERS), {"months": (1, 4, 7, 10)}, "jan-apr-jul-oct"),
        (daily("09:00", months=[4, 1]), {"months": (1, 4)}, "jan-apr"),
        (daily("09:00", months=2), {"months": (2,)}, "feb"),
        (daily("09:00", weeks="last"), {"weeks": ("last",)}, "last"),
        (daily("09:00", between="8:00-17:00"), {"between": "8:00-17:00"}, "800-1700"),
    ],
)
def test_filters_are_part_of_the_name(when, filters, name):
    assert when.timing.filters == Filters(**filters)
    assert when.name == f"daily-09-00-{name}"


def test_what_restricts_nothing_is_no_filter():
    when = daily("09:00", days=Days.ALL, months=Months.ALL, weeks=Weeks.ALL)
    assert when == daily("09:00")


def test_days_are_a_step_or_a_filter():
    assert every(minutes=5, days=Days.MON).timing.filters.days == ("mon",)
    assert spaced(minutes=5, days="mon").timing.filters.days == ("mon",)
    assert every(days=2).timing.filters.days == ()


@pytest.mark.parametrize(
    "changed",
    [
        {"tz": "Europe/Berlin"},
        {"jitter": 5},
        {"start": "2027-01-01"},
        {"end": date(2030, 1, 1)},
        {"exclude": exclude_days("sun")},
        {"misfire": "skip"},
        {"overlap": "queue_one"},
        {"enabled": False},
    ],
)
def test_names_leave_out_what_may_change_under_an_operator_s_hands(changed):
    assert daily("09:00", **changed).name == "daily-09-00"
    app = App("billing")
    app.job("job")(daily("09:00")(daily("09:00", **changed)(lambda ctx: None)))
    [problem] = problems(app)
    assert "two cadences that are both called 'job-daily-09-00'" in problem
    assert "give one of them a name=" in problem


def test_names_do_not_depend_on_order_or_on_others():
    def ids(*cadences):
        app = App("billing")

        def body(ctx): ...

        for one in cadences:
            one(body)
        app.job("job")(body)
        return {one.external_id for one in app.definitions().manifests}

    one, other = daily("09:00"), daily("09:00", days="weekdays")
    assert ids(one) == {"job-daily-09-00"}
    assert ids(one, other) == ids(other, one) == {"job-daily-09-00", "job-daily-09-00-weekdays"}


def test_the_same_cadence_twice_is_a_problem():
    app = App("billing")
    app.job("job")(every(hours=1)(every(minutes=60)(lambda ctx: None)))
    assert problems(app) == [
        "job 'job' has the same cadence twice, which gives two manifests 'job-every-1h': remove one"
    ]


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
        (daily("09:00", days="moon"), "'moon' is no weekday: use mon, tue"),
        (daily("09:00", days=["mon", 3]), "3 is no weekday"),
        (daily("09:00", months=13), "13 is no month"),
        (daily("09:00", weeks="fifth"), "'fifth' is no week of a month.*did you mean 'first'"),
        (daily("09:00", between="9-17"), "time of day '9' is not valid"),
        (daily("09:00", start="soon"), "start 'soon' is not valid"),
        (daily("09:00", start=datetime(2027, 1, 1, tzinfo=UTC)), "carries a zone"),
        (daily("09:00", exclude=exclude_dates("2027-13-01")), "'2027-13-01' is no date to exclude"),
        (daily("09:00", exclude=exclude_range("a", "2027-01-01")), "'a' is no date to exclude"),
        (daily("09:00", exclude=[exclude_days("x")]), "'x' is no weekday"),
        (daily("09:00", exclude="sundays"), "exclude= takes exclude_days"),
        (daily("09:00", misfire="catchup"), "'catchup' is no misfire policy"),
        (daily("09:00", overlap="queue"), "'queue' is no overlap policy.*did you mean 'queue_one'"),
        (daily("09:00", overlap=allow(0)), "Expected `int` >= 1"),
        (daily("09:00", misfire=catch_up(0)), "Expected `int` >= 1"),
        (daily("09:00", jitter=-1), "Expected `float` >= 0.0"),
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
        (monthly(32, "06:00"), "32 is no day of a month: use a number from 1 to 31, or LAST"),
        (monthly_dow("first", None, "06:00"), "days is empty"),
        (once("2027-06-01"), "names no time"),
    ],
)
def test_a_cadence_that_cannot_be_kept_is_told_in_one_line(when, complaint):
    app = App("billing")
    app.job("job")(when(lambda ctx: None))
    [problem] = problems(app)
    assert re.search(complaint, problem)


def test_an_unknown_keyword_is_refused_at_once():
    with pytest.raises(TypeError, match=r"daily\(\) takes no keyword 'dayz'; did you mean 'days'"):
        daily("09:00", dayz="mon")
    with pytest.raises(TypeError, match=r"manual\(\) takes no keyword 'tz'"):
        manual(tz="UTC")


@pytest.mark.parametrize("value", [math.nan, [math.inf], {"deep": -math.inf}])
def test_an_input_that_json_would_change_is_refused(value):
    app = App("billing")
    app.job("job")(lambda ctx, thing: None)
    app.schedule("odd", job="job", when=every(hours=1), input=value)
    [problem] = problems(app)
    assert "manifest 'odd': its input does not come back from JSON" in problem


def test_keys_of_an_input_become_text():
    app = App("billing")
    app.job("job")(lambda ctx, thing: None)
    app.schedule("fine", job="job", when=every(hours=1), input={1: 2})
    assert app.definitions().manifests[0].input == {"1": 2}


def test_an_input_type_without_a_schema_is_a_problem_of_the_job():
    app = App("billing")

    class Plain: ...

    @app.job("job")
    def job(ctx, thing: Plain | int): ...

    app.schedule("use", job=job, when=every(hours=1), input=1)
    assert any("job 'job': its input type has no JSON Schema" in one for one in problems(app))


def test_the_name_of_manifests_made_at_run_time_is_reserved():
    with pytest.raises(InvalidName, match="app name 'api' is reserved"):
        App("api")


@pytest.mark.parametrize("generation", [-1, 1.5, True, "1"])
def test_a_generation_is_a_whole_number(generation):
    assert problems(App("billing", generation=generation)) == [
        f"generation {generation!r} is not valid: use a whole number from 0 on"
    ]
    assert App("billing", generation=7).definitions().generation == 7


def test_a_group_may_be_stated_in_parts_but_not_in_contradictions():
    app = App("billing")
    app.group("ops", max_active=2)
    app.group("ops", priority=3, enabled=False)
    [group] = app.definitions().groups
    assert (group.max_active, group.priority, group.enabled) == (2, 3, False)
    app.group("ops", max_active=4, priority=3)
    assert problems(app) == ["group 'ops' states max_active twice, as 2 and as 4: state it once"]


@pytest.mark.parametrize(
    "when",
    [lambda: every(minutes="5"), lambda: spaced(hours=None), lambda: every(seconds=[1])],
)
def test_a_step_that_is_no_number_is_a_problem_and_no_exception(when):
    app = App("billing")
    app.job("job")(lambda ctx: None)
    app.schedule("m", job="job", when=when())
    assert any("write a number" in problem for problem in problems(app))


def test_a_group_that_is_no_name_is_a_problem_and_no_exception():
    app = App("billing")
    app.job("job")(lambda ctx: None)
    app.schedule("m", job="job", when=every(hours=1), group=[])
    assert any("group name" in problem for problem in problems(app))


class TestKindsOfFailure:
    def test_exceptions_and_names_alone_or_in_a_list(self):
        class Odd(Exception): ...

        policy = retry(retry_on=[TimeoutError, "Busy", Odd], abort_on=ValueError).policy
        assert policy.retry_on == ("TimeoutError", "Busy", "Odd")
        assert policy.abort_on == ("ValueError",)
        assert retry(retry_on="timed_out").policy.retry_on == ("timed_out",)

    @pytest.mark.parametrize("given", [int, 3, [ValueError()], [None]])
    def test_anything_else_is_refused(self, given):
        with pytest.raises(TypeError, match="retry_on takes exceptions or their names"):
            retry(retry_on=given)

    def test_they_reach_the_manifest_and_a_bad_one_is_told(self):
        app = App("test")

        @app.job("work")
        @every(minutes=5)
        @retry(retry_on=[OSError])
        async def work(ctx): ...

        assert app.definitions().manifests[0].retry.retry_on == ("OSError",)
        app.job("odd")(every(minutes=5)(retry(abort_on=["x" * 256])(lambda ctx: None)))
        with pytest.raises(InvalidDefinitions, match="abort_on"):
            app.definitions()


class TestHowAWorkerRunsIt:
    def test_a_process_must_find_the_function(self):
        app = App("test")

        @app.job("work", process=True)
        def work(ctx): ...

        with pytest.raises(InvalidDefinitions, match="put it at the top level of a module"):
            app.definitions()

    @pytest.mark.parametrize("most", [0, -1, 1.5, True, "two"])
    def test_concurrency_is_a_number_from_one_on(self, most):
        app = App("test")
        app.job("work", worker_concurrency=most)(lambda ctx: None)
        with pytest.raises(InvalidDefinitions, match="worker_concurrency"):
            app.definitions()


class TestLabels:
    def test_a_manifest_has_its_job_s_and_its_own_which_go_before(self):
        app = App("test")
        app.job("job", labels={"team": "data", "tier": "2"})(body)
        app.schedule("plain", job="job", when=every(hours=1))
        app.schedule("own", job="job", when=every(hours=1), labels={"tier": "1", "eu": ""})
        found = {one.external_id: one.labels for one in app.definitions().manifests}
        assert found["plain"] == {"team": "data", "tier": "2"}
        assert found["own"] == {"team": "data", "tier": "1", "eu": ""}

    def test_none_are_no_change_of_a_definition(self):
        app = App("test")
        app.job("job")(body)
        app.schedule("plain", job="job", when=every(hours=1))
        [manifest] = app.definitions().manifests
        assert b"labels" not in msgspec.json.encode(manifest)

    @pytest.mark.parametrize(
        "labels", [{"a b": "c"}, {"a": 1}, {"": "c"}, {"a": "line\nbreak"}, ["team"], "team"]
    )
    def test_others_are_refused(self, labels):
        app = App("test")
        app.job("job")(body)
        app.schedule("m", job="job", when=every(hours=1), labels=labels)
        with pytest.raises(InvalidDefinitions, match="manifest 'm'"):
            app.definitions()


async def body(ctx): ...
