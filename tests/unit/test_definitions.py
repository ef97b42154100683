"""What an app declares, and what it is told about its mistakes."""

import math
from dataclasses import dataclass

import msgspec
import pytest
from headway import App, InvalidDefinitions, cron, every, retry
from headway_contract import InvalidName
from headway_contract.work import RetryPolicy
from headway_decisions.cadence import Cron, Every


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
    assert manifest.cadence == Cron("15 3 * * *")
    assert (manifest.tz, manifest.group, manifest.priority) == ("Europe/Berlin", "ops", 3)
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
    assert definitions.manifests[0].cadence == Every(3600)
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
    assert len(problems(app)) == 18


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
