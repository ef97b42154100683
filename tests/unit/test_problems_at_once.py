"""All problems of definitions are reported together, one a line."""

import math
import zlib

import msgspec
import pytest
from headway import (
    App,
    InvalidDefinitions,
    Item,
    allow,
    catch_up,
    cron,
    daily,
    every,
    exclude_days,
    exclude_range,
    manual,
    monthly,
    retry,
    weekly,
)
from headway.define.assembly import assemble_at_run_time
from headway.define.declarations import BatchDraft, Draft
from headway.define.packing import UnreadableDefinitions, unpack
from headway.yaml_file import read_app
from headway_contract.fields import Rate
from support.definitions import check_beginnings, check_phrases, problems

HOURLY = every(hours=1)


@pytest.fixture
def app() -> App:
    app = App("shop")

    @app.job("work")
    def work(ctx, number: int): ...

    @app.job("quiet")
    def quiet(ctx): ...

    return app


def problem_lines(app: App) -> set[str]:
    """Return the problems of an app; fail if a problem is reported twice."""
    found = problems(app)
    assert len(found) == len(set(found))
    return set(found)


BAD_CRON = "cron expression '61 * * * *' is not valid: [61 * * * *] is not acceptable, out of range"
SWAPPED = "excluded range ends on 2027-01-01, before its first day 2027-02-01: swap them"


def test_a_manifest_in_which_everything_is_wrong(app):
    when = cron(
        "61 * * * *",
        jitter=-5,
        overlap="queue",
        misfire=catch_up(0),
        exclude=exclude_range("2027-02-01", "2027-01-01"),
    )
    app.schedule(
        "m", job="work", input="x", when=when, priority=99, timeout=-1, retry=retry(attempts=0),
        cancel_grace=9999, enabled="no", on_lost_contact="run", group="a b",
    )  # fmt: skip
    assert problem_lines(app) == {
        "group name 'a b' is not valid: use 1 to 64 letters, digits, '-' and '_', starting with a "
        "letter or digit (no spaces, no dots)",
        f"manifest 'm': {BAD_CRON}",
        f"manifest 'm': {SWAPPED}",
        "manifest 'm': 'queue' is not an overlap policy: use 'skip', 'queue_one', 'cancel_running' or "
        "allow(n); did you mean 'queue_one'?",
        "manifest 'm': its input does not fit job 'work': Expected `int`, got `str`",
        "manifest 'm': priority 99 is not valid: use a whole number from 0 to 31",
        "manifest 'm': timeout -1 is not valid: use a number of seconds above 0, up to 302400",
        "manifest 'm': cancel_grace 9999 is not valid: use a number of seconds from 0 to 3600",
        "manifest 'm': jitter -5 is not valid: use a number of seconds from 0 to 86400",
        "manifest 'm': retry.attempts 0 is not valid: use a whole number from 1 to 1000000",
        "manifest 'm': misfire.limit 0 is not valid: use a whole number from 1 to 1000",
        "manifest 'm': enabled 'no' is not valid: use true or false",
        "manifest 'm': on_lost_contact 'run' is not valid: use 'continue' or 'stop'",
    }


def test_a_group_and_a_job_in_which_everything_is_wrong():
    app = App("shop")
    app.group(
        "two words", max_active=-1, priority=99, enabled=5, rate=Rate(count=0, period_seconds=1)
    )
    app.job("a.b", group="c d", priority=99, timeout=0, batch=0, labels={"x": 1}, rate="often")(
        lambda one, two, three: None
    )
    expected = (
        "group name 'two words' is not valid",
        "group 'two words': max_active -1 is not valid: use a whole number from 0 to 1000000",
        "group 'two words': priority 99 is not valid",
        "group 'two words': enabled 5 is not valid: use true or false",
        "group 'two words': rate.count 0 is not valid: use a whole number from 1 to 1000000",
        "job name 'a.b' is not valid",
        "group name 'c d' is not valid",
        "job 'a.b': priority 99 is not valid",
        "job 'a.b': timeout 0 is not valid",
        "job 'a.b': batch 0 is not valid",
        "job 'a.b': labels {'x': 1} is not valid",
        "must take a context and at most one input",
        "'often'",
    )
    check_phrases(problem_lines(app), expected)


def test_a_manifest_of_an_unknown_job_is_looked_at_all_the_same(app):
    app.schedule("m", job="gone", when=daily("25:00", overlap="x"), priority=99)
    lines = problem_lines(app)
    assert len(lines) == 4
    assert any("names the job 'gone', which is not declared" in line for line in lines)
    assert any("time of day '25:00'" in line for line in lines)


def test_a_problem_stated_once_is_reported_once():
    app = App("shop", defaults={"jitter": -1, "overlap": allow(0)})

    @app.job("bad name", timeout=-1)
    @daily("09:00")
    @daily("10:00", name="late")
    def work(ctx): ...

    app.schedule("own", job="bad name", when=HOURLY, timeout=-1)
    assert [line.partition(": use")[0] for line in problems(app)] == [
        "defaults of the app: overlap.limit 0 is not valid",
        "defaults of the app: jitter -1 is not valid",
        "job name 'bad name' is not valid",
        "job 'bad name': timeout -1 is not valid",
        "manifest 'own': timeout -1 is not valid",
    ]


@pytest.mark.parametrize("key", ["{input.", 5])
def test_an_invalid_key_is_reported_once_with_its_job(key):
    app = App("shop")
    app.job("work", concurrency_key=key)(lambda ctx: None)
    app.schedule("one", job="work", when=HOURLY)
    app.schedule("two", job="work", when=HOURLY)
    [problem] = problems(app)
    assert problem.startswith("job 'work': concurrency_key")
    app.schedule("own", job="work", when=HOURLY, concurrency_key=key)
    assert len(problems(app)) == 2


@pytest.mark.parametrize("term", ["on_dead_letter", "on_lost_contact", "concurrency_limit"])
def test_a_job_that_states_none_where_it_is_invalid_is_reported(term):
    app = App("shop")
    app.job("work", **{term: None})(lambda ctx: None)
    app.schedule("one", job="work", when=HOURLY)
    [problem] = problems(app)
    assert problem.startswith(f"job 'work': {term} None is not valid: use")


@pytest.mark.parametrize("window", [9, ("09:00", "17:00")])
def test_a_window_that_is_no_text_is_reported(app, window):
    app.schedule("m", job="quiet", when=every(hours=1, between=window))
    [problem] = problems(app)
    assert problem.endswith(f"window {window!r} is not valid: write it as 'HH:MM-HH:MM'")


def test_consequences_of_a_mistake_are_not_reported(app):
    app.schedule("month", job="quiet", when=monthly(32, "25:00", tz="Mars/Base"))
    app.schedule("week", job="quiet", when=weekly("moon", "09:00", months=13))
    app.schedule_many("a b", job="work", items={"x": 1, "y": 2}, when=HOURLY)
    lines = problem_lines(app)
    assert len(lines) == 6
    assert not any("is empty" in line or "never fires" in line for line in lines)
    assert sum("'a b" in line for line in lines) == 1


def test_a_timing_that_never_fires_is_reported_beside_a_wrong_policy(app):
    when = daily("09:00", between="10:00-11:00", overlap="queue")
    app.schedule("m", job="quiet", when=when)
    assert any("never fires" in line for line in problem_lines(app))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_values_that_json_turns_into_null_are_reported(app, value):
    app.group("g", max_active=value)
    assert problem_lines(app) == {
        f"group 'g': max_active {value} is not valid: use a whole number from 0 to 1000000"
    }


class TestBatches:
    @pytest.mark.parametrize("items", [None, 5, "abc"])
    def test_items_that_are_none(self, app, items):
        app.schedule_many("b", job="work", items=items, when=HOURLY)
        assert problem_lines(app) == {
            f"batch 'b': items {items!r} is not valid: give a mapping from id to input, or a list "
            "of items"
        }

    def test_a_configure_that_gives_no_mapping_is_reported(self, app):
        app.schedule_many("d", job="work", items={"a": 1}, configure=lambda item: None, when=HOURLY)
        assert problem_lines(app) == {
            "manifest 'd-a': configure gives None: give a mapping of terms",
        }

    def test_an_exception_of_the_code_for_an_item_reaches_the_caller(self, app):
        key, items = (lambda item: item["id"]), [{"id": 1}, {"x": 1}]
        with pytest.raises(KeyError, match="id"):
            app.schedule_many("b", job="work", items=items, key=key, when=HOURLY)
        with pytest.raises(ZeroDivisionError):
            app.schedule_many(
                "c", job="work", items={"a": 1}, configure=lambda item: 1 / 0, when=HOURLY
            )

    def test_ids_that_are_none(self, app):
        app.schedule_many(
            "b", job="work", items=[Item(None, 1), (["x"], 1), (True, 1)], when=HOURLY
        )
        app.schedule(["x"], job="quiet", when=HOURLY).then("after", job="quiet")
        app.manifest(None).then("later", job="quiet")
        lines = problem_lines(app)
        assert sum("which is neither text nor a whole number" in line for line in lines) == 3
        assert any("manifest id ['x'] is not valid" in line for line in lines)
        assert any(
            "'after' depends on ['x'], which this app does not declare" in line for line in lines
        )
        assert any("'later': then_include follows no manifest" in line for line in lines)
        assert len(lines) == 6


class TestWithoutMeaning:
    def test_terms_of_fire_times_are_refused_where_there_are_none(self, app):
        app.schedule(
            "m", job="quiet", when=manual(), jitter=5, misfire="skip", exclude=exclude_days("sun")
        )
        app.manifest("m").include_many(
            "b", job="work", items={"x": 1}, configure=lambda item: {"jitter": 5}
        )
        manual_words = "has no effect on a manual cadence, which never fires by itself"
        assert problem_lines(app) == {
            *(
                f"manifest 'm': {option} {manual_words}: leave it out"
                for option in ("jitter", "misfire", "exclude")
            ),
            "manifest 'b-x': jitter has no effect on a dependent, which fires at its parent's "
            "success: leave it out",
        }

    def test_defaults_and_terms_of_a_batch_apply_to_items_with_fire_times(self):
        app = App("shop", defaults={"jitter": 5, "misfire": "skip"})
        app.job("work")(lambda ctx, thing: None)
        app.schedule("m", job="work", when=manual())
        app.schedule_many(
            "b", job="work", items={"x": 1, "y": 2}, when=HOURLY, jitter=7,
            configure=lambda item: {"when": manual()} if item.id == "x" else {},
        )  # fmt: skip
        found = {
            manifest.external_id: manifest.jitter_seconds
            for manifest in app.definitions().manifests
        }
        assert found == {"m": 0, "b-x": 0, "b-y": 7}

    def test_in_yaml(self):
        text = (
            "app: shop\njobs: {work: }\nmanifests:\n"
            "  m: {job: work, manual: true, jitter: 5, misfire: skip, exclude: {days: sun}}\n"
        )
        found = problems(text)
        assert len(found) == 3
        assert all(problem.startswith("line 4: manifest 'm': ") for problem in found)


def test_a_manifest_of_a_file_in_which_everything_is_wrong():
    text = (
        "app: shop\njobs: {work: }\nmanifests:\n"
        "  m: {job: work, cron: 61 * * * *, overlap: queue, priority: 99, timeout: 0, jitter: -5,\n"
        "      retry: {attempts: 0}, exclude: {range: [2027-02-01, 2027-01-01]}, group: a b}\n"
    )
    assert [problem.partition(": use 1")[0] for problem in problems(text)] == [
        "line 4: manifest 'm': overlap 'queue' is not valid: use 'cancel_running' or 'queue_one' or "
        "'skip' or a mapping with allow",
        "line 4: manifest 'm': priority 99 is not valid: use a whole number from 0 to 31",
        "line 4: manifest 'm': timeout 0 is not valid: use a number above 0, up to 302400",
        "line 4: manifest 'm': jitter -5 is not valid: use a number from 0 to 86400",
        "line 5: manifest 'm': retry: attempts 0 is not valid: use a whole number from 1 to 1000000",
        f"line 4: manifest 'm': {BAD_CRON}",
        f"line 4: manifest 'm': {SWAPPED}",
        "line 4: group name 'a b' is not valid",
    ]


class TestAtRunTime:
    def test_requests_of_the_client(self):
        with pytest.raises(InvalidDefinitions) as caught:
            assemble_at_run_time(Draft("m", "a b", daily("25:00"), terms={"priority": 99}))
        assert len(caught.value.problems) == 3
        with pytest.raises(InvalidDefinitions, match="neither a cadence nor a parent"):
            assemble_at_run_time(Draft("m", "work"))
        with pytest.raises(InvalidDefinitions, match="when= takes a cadence"):
            assemble_at_run_time(Draft("m", "work", "daily"))
        with pytest.raises(InvalidDefinitions, match="items None is not valid"):
            batch = BatchDraft(name="b", job="work", items=None, when=HOURLY, terms={})
            assemble_at_run_time(batch)

    @pytest.mark.parametrize(
        ("sent", "problem"),
        [
            ({"owner": "shop", "generation": -1}, "Expected `int` >= 0 - at `$.generation`"),
            (
                {"owner": "shop", "manifests": [{"external_id": "n"}]},
                "missing required field `job` - at `$.manifests[0]`",
            ),
            ({"owner": "shop", "batches": {}}, "Expected `array`, got `object` - at `$.batches`"),
        ],
    )
    def test_definitions_from_requests(self, sent, problem):
        with pytest.raises(UnreadableDefinitions) as caught:
            unpack(zlib.compress(msgspec.json.encode(sent)))
        assert str(caught.value).startswith("not definitions: ")
        assert str(caught.value).endswith(problem)

    @pytest.mark.parametrize("sent", [[], None, "x", {}, {"manifests": 5}])
    def test_bodies_that_are_no_definitions(self, sent):
        with pytest.raises(UnreadableDefinitions, match="not definitions"):
            unpack(zlib.compress(msgspec.json.encode(sent)))


def test_terms_of_a_batch_without_matching_items(app):
    app.schedule_many("none", job="gone", items={}, when=daily("25:00", weekdays="someday"))
    own = {"when": daily("24:30")}
    app.schedule_many(
        "all", job="quiet", items={"a": None}, when=cron("x"), configure=lambda _: own
    )
    expected = [
        "batch 'none' names the job 'gone'",
        "batch 'none': time of day '25:00'",
        "batch 'none': 'someday' is not a weekday",
        "batch 'all': cron expression 'x'",
        "manifest 'all-a': time of day '24:30'",
    ]
    check_beginnings(problem_lines(app), expected)


def test_terms_of_a_batch_without_items_in_a_file():
    text = "app: shop\njobs: {work: {}}\nbatches:\n  b: {job: work, items: {}, cron: 'x'}\n"
    check_phrases(problems(text), ["batch 'b': cron expression 'x'"])


@pytest.mark.parametrize("given", [10**400, -(10**400)])
def test_numbers_beyond_all_bounds(app, given):
    app.job("slow", worker_concurrency=given)(lambda ctx: None)
    app.schedule("m", job="quiet", when=HOURLY, start_within=given, retry=retry(attempts=given))
    lines = problem_lines(app)
    check_phrases(lines, ["worker_concurrency", "start_within", "retry.attempts"])
    assert all(len(line) < 250 for line in lines)


def test_half_a_surrogate_pair_is_no_key(app):
    app.schedule("m", job="quiet", when=HOURLY, concurrency_key="half \ud800")
    check_phrases(problem_lines(app), ["no half of a surrogate pair"])


def test_keys_that_stand_twice_in_a_file_hide_no_other_problem():
    text = "app: shop\nmanifests:\n  a: {job: x, manual: true}\n  a: {job: y, manual: true}\njob: 1"
    with pytest.raises(InvalidDefinitions) as caught:
        read_app(text)
    places = [problem.partition(":")[0] for problem in caught.value.problems]
    assert places == ["line 4", "line 5", "line 3"]
