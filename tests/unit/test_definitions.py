"""Definitions of an app, and the messages about its mistakes."""

import math
from dataclasses import dataclass

import msgspec
import pytest
from headway import (
    App,
    InvalidDefinitions,
    Item,
    cron,
    daily,
    every,
    retry,
)
from headway.define.inputs import problem_of_input
from headway_contract import InvalidName
from headway_contract.work import RetryPolicy
from headway_decisions.timing.cadence import (
    Cron,
    Every,
)
from support.definitions import problems


class Customer(msgspec.Struct):
    id: int
    name: str


@dataclass
class Invoice:
    number: int


def test_a_decorated_job_becomes_a_manifest_whose_id_has_the_kind_of_its_cadence():
    app = App("billing")

    @app.job("cleanup", group="ops", description="Tidies up.", priority=3, timeout=60)
    @cron("15 3 * * *", tz="Europe/Berlin")
    @retry(attempts=5, interval=1)
    async def cleanup(ctx): ...

    [manifest] = app.definitions().manifests
    assert manifest.external_id == "cleanup-cron"
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

    assert {manifest.external_id for manifest in app.definitions().manifests} == {
        "sync-every",
        "sync-hourly",
    }


def test_jobs_and_their_functions_stand_for_manifests():
    app = App("billing")
    for name in ("work", "quiet"):
        app.job(name)(lambda ctx: None)
    extract = app.job("extract-all")(daily("06:00")(lambda ctx: None))
    load = app.job("load")(lambda ctx: None)
    app.manifest(extract).then(load).then("quiet").include("again", job=load)
    app.manifest("quiet").include_many("mail", job="work", items=[Item("a", depends_on=extract)])
    parents = {each.external_id: each.depends_on for each in app.definitions().manifests}
    assert parents == {
        "extract-all-daily": None,
        "load": "extract-all-daily",
        "quiet": "load",
        "again": "extract-all-daily",
        "mail-a": "extract-all-daily",
    }


def test_a_function_without_exactly_one_manifest_is_no_parent():
    app = App("billing")
    app.job("quiet")(lambda ctx: None)
    twice = app.job("twice")(every(hours=1)(daily("06:00")(lambda ctx: None)))
    app.manifest(twice).then("quiet")
    assert problems(app) == [
        "job 'twice' has 2 manifests, so its function does not stand for one: name the parent by "
        "its id ('twice-daily', 'twice-every')"
    ]


def test_an_undeclared_function_is_named():
    app = App("billing")

    def forgotten(ctx): ...

    app.manifest(forgotten).then(forgotten)
    name = "test_an_undeclared_function_is_named.<locals>.forgotten"
    found = problems(app)
    assert f"manifest {name!r} names the job {name!r}, which is not declared" in "\n".join(found)


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
    assert [manifest.input for manifest in definitions.manifests] == [
        {"id": 1, "name": "Ada"},
        {"number": 7},
        [1, [2]],
    ]
    assert definitions.manifests[0].timing.cadence == Every(3600)
    assert definitions.jobs[0].input_schema is not None
    assert definitions.jobs[2].input_schema is None


def test_the_default_of_a_body_s_parameter_makes_the_input_optional():
    app = App("billing")

    @app.job("count")
    def count(ctx, number: int = 7): ...

    app.schedule("default", job=count, when=every(hours=1))
    app.schedule("stated", job=count, when=every(hours=1), input=8)
    definitions = app.definitions()
    schema = definitions.jobs[0].input_schema
    assert problem_of_input(schema, True, None) is None
    assert problem_of_input(schema, True, "x") is not None
    job = app.jobs["count"]
    assert [job.read_input(manifest.input) for manifest in definitions.manifests] == [7, 8]


def test_an_equal_definition_has_an_equal_fingerprint_and_a_changed_one_has_not():
    def build(tz: str):
        app = App("billing")
        app.job("sync")(lambda ctx: None)
        app.schedule("nightly", job="sync", when=cron("0 3 * * *", tz=tz))
        return app.definitions().manifests[0].fingerprint()

    assert build("UTC") == build("UTC")
    assert build("UTC") != build("Europe/Berlin")


def test_all_problems_are_reported_at_once():
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
        "must take a context and at most one input: write def greedy(ctx) or def greedy(ctx, order)",
        "job 'slow': timeout 864000 is not valid: use a number of seconds above 0, up to 302400",
        "group name 'dotted.name'",
        "group 'ops': max_active -1 is not valid: use a whole number from 0 to 1000000",
        "group 'ops': priority 99 is not valid: use a whole number from 0 to 31",
        "two manifests have the id 'twice'",
        "'61 * * * *' is not valid",
        "manifest 'never'",
        "time zone 'Mars/Base'",
        "'undeclared', which is not declared",
        "manifest 'wrong-input': its input does not fit job 'sync'",
        "takes no input",
        "manifest 'nul-input': it holds a NUL",
        "job 'infinite': retry.max_interval inf is not valid: use a number of seconds",
        "every(60.6 s)",
        "job 'nul-words': it holds a NUL",
        "manifest 'surrogate'",
        "manifest id 'with space'",
    ):
        assert expected in found
    assert len(problems(app)) == 19, "terms of a job are told once, with the job"


@pytest.mark.parametrize(
    ("given", "stored"), [("\\u0000", "\\u0000"), ({1: 2}, {"1": 2})], ids=["about-nul", "keys"]
)
def test_text_about_a_nul_is_no_nul_and_keys_become_text(given, stored):
    app = App("billing")
    app.job("job")(lambda ctx, thing: None)
    app.schedule("fine", job="job", when=every(hours=1), input=given)
    assert app.definitions().manifests[0].input == stored


def test_an_app_s_own_name_is_checked():
    with pytest.raises(InvalidName, match="app name"):
        App("my app")


def test_groups_are_stated_or_used():
    app = App("billing")
    app.group("ops", max_active=2)

    @app.job("sync")
    @every(hours=1)
    def sync(ctx): ...

    assert {group.name: group.max_active for group in app.definitions().groups} == {
        "ops": 2,
        "sync": None,
    }


@pytest.mark.parametrize("value", [math.nan, [math.inf], {"deep": -math.inf}])
def test_an_input_that_json_would_change_is_refused(value):
    app = App("billing")
    app.job("job")(lambda ctx, thing: None)
    app.schedule("odd", job="job", when=every(hours=1), input=value)
    [problem] = problems(app)
    assert "manifest 'odd': its input changes when it is encoded as JSON" in problem


def test_an_input_type_without_a_schema_is_a_problem_of_the_job():
    app = App("billing")

    class Plain: ...

    @app.job("job")
    def job(ctx, thing: Plain | int): ...

    app.schedule("use", job=job, when=every(hours=1), input=1)
    assert any(
        "job 'job': its input type has no JSON Schema" in problem for problem in problems(app)
    )


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
    assert problems(app) == ["group 'ops' sets max_active twice, to 2 and to 4: set it once"]


def test_a_group_that_is_no_name_is_a_problem_and_no_exception():
    app = App("billing")
    app.job("job")(lambda ctx: None)
    app.schedule("m", job="job", when=every(hours=1), group=[])
    assert any("group name" in problem for problem in problems(app))


class TestKindsOfFailure:
    def test_exceptions_and_names_alone_or_in_a_list(self):
        class Odd(Exception): ...

        policy = retry(retry_on=[TimeoutError, "Busy", Odd], abort_on=ValueError).over(
            RetryPolicy()
        )
        assert policy.retry_on == ("TimeoutError", "Busy", "Odd")
        assert policy.abort_on == ("ValueError",)
        assert retry(retry_on="timed_out").over(RetryPolicy()).retry_on == ("timed_out",)

    @pytest.mark.parametrize("given", [int, 3, [ValueError()], [None]])
    def test_anything_else_is_refused(self, given):
        with pytest.raises(TypeError, match="retry_on takes exceptions or their names"):
            retry(retry_on=given)

    def test_they_reach_the_manifest_and_invalid_ones_are_reported(self):
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
        found = {manifest.external_id: manifest.labels for manifest in app.definitions().manifests}
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
