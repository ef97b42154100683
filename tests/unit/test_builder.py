"""Built schedules: chains of dependents, batches and their error messages."""

import itertools
import re

import msgspec
import pytest
from headway import (
    App,
    InvalidDefinitions,
    Item,
    allow,
    catch_up,
    daily,
    every,
    exclude_days,
    retry,
    skip_missed,
)
from headway.define.definitions import Batch
from headway_contract.work import RetryPolicy
from headway_decisions.firing.manifest_state import Misfire, Overlap
from headway_decisions.timing.cadence import Manual
from headway_decisions.timing.calendar import ExcludedDays
from headway_decisions.timing.timing import Timing
from support.definitions import problems

HOURLY = every(hours=1)


class Customer(msgspec.Struct):
    id: int
    name: str


@pytest.fixture
def app() -> App:
    app = App("billing")

    @app.job("work", group="working", priority=2, timeout=60, cancel_grace=5)
    @retry(attempts=7)
    def work(ctx, thing=None): ...

    @app.job("quiet")
    def quiet(ctx): ...

    @app.job("sync")
    def sync(ctx, customer: Customer): ...

    return app


def parents(app: App) -> dict[str, str | None]:
    return {manifest.external_id: manifest.depends_on for manifest in app.definitions().manifests}


def only_problem(app: App) -> str:
    [problem] = problems(app)
    return problem


def test_a_manifest_inherits_unstated_fields_from_its_job(app):
    app.schedule("plain", job="work", when=HOURLY)
    [manifest] = app.definitions().manifests
    assert (manifest.group, manifest.priority, manifest.timeout_seconds) == ("working", 2, 60)
    assert manifest.cancel_grace_seconds == 5
    assert manifest.retry == RetryPolicy(attempts=7)
    assert manifest.enabled


def test_a_manifest_goes_before_its_cadence_and_its_job(app):
    app.schedule(
        "own",
        job="work",
        when=every(
            hours=1, jitter=1, misfire=skip_missed(), overlap="skip", exclude=exclude_days("sat")
        ),
        group="other",
        priority=0,
        timeout=9,
        cancel_grace=0,
        on_lost_contact="continue",
        on_dead_letter="go_on",
        retry=retry(attempts=2),
        misfire=catch_up(2),
        overlap=allow(3),
        exclude=exclude_days("sun"),
        jitter=0,
        enabled=False,
    )
    [manifest] = app.definitions().manifests
    assert (manifest.group, manifest.priority, manifest.timeout_seconds) == ("other", 0, 9)
    assert (manifest.cancel_grace_seconds, manifest.on_lost_contact) == (0, "continue")
    assert manifest.on_dead_letter == "go_on"
    assert manifest.retry == RetryPolicy(attempts=2)
    assert manifest.misfire == Misfire(policy="catch_up", limit=2)
    assert manifest.overlap == Overlap(policy="allow", limit=3)
    assert manifest.timing.exclusions == (ExcludedDays(("sat",)), ExcludedDays(("sun",)))
    assert (manifest.jitter_seconds, manifest.enabled) == (0, False)


def test_the_dead_letter_policy_is_the_jobs_unless_the_manifest_states_it():
    app = App("test")

    @app.job("lenient", on_dead_letter="go_on")
    @HOURLY
    def lenient(ctx): ...

    app.schedule("strict", job=lenient, when=HOURLY, on_dead_letter="block").then(
        "after", job=lenient
    )
    found = {
        manifest.external_id: manifest.on_dead_letter for manifest in app.definitions().manifests
    }
    assert found == {"lenient-every": "go_on", "strict": "block", "after": "go_on"}
    app.schedule("odd", job=lenient, when=HOURLY, on_dead_letter="stop")
    with pytest.raises(InvalidDefinitions, match="on_dead_letter"):
        app.definitions()


def test_include_hangs_on_the_root_and_then_include_on_the_cursor(app):
    chain = app.schedule("root", job="quiet", when=HOURLY)
    chain.include("a", job="quiet").then_include("b", job="quiet")
    chain.then("c", job="quiet").include("d", job="quiet", dormant=True)
    chain.then_include("e", job="quiet")
    assert parents(app) == {"root": None, "a": "root", "b": "a", "c": "b", "d": "root", "e": "d"}
    manifests = {manifest.external_id: manifest for manifest in app.definitions().manifests}
    assert {name for name, manifest in manifests.items() if manifest.dormant} == {"d"}
    assert manifests["b"].timing == Timing(cadence=Manual())


def test_a_chain_continues_from_a_manifest_that_is_declared_elsewhere_or_later(app):
    app.manifest("nightly").then("mail", job="quiet").then("file", job="work", input=[1])
    app.schedule("nightly", job="quiet", when=daily("02:00"))
    assert parents(app) == {"nightly": None, "mail": "nightly", "file": "mail"}


def test_an_undeclared_parent_is_named(app):
    app.manifest("gone").then("mail", job="quiet")
    assert only_problem(app).startswith(
        "manifest 'mail' depends on 'gone', which this app does not declare"
    )


def test_a_cycle_is_reported_once_with_its_path_in_the_order_of_running(app):
    app.manifest("a").then("b", job="quiet").then("c", job="quiet").then("a", job="quiet")
    app.manifest("c").then("leaf", job="quiet")
    problem = only_problem(app)
    path = re.search(r"dependency cycle: ([^:]*):", problem)[1].split(" → ")
    assert path[0] == path[-1]
    assert set(path) == {"a", "b", "c"}
    assert all(
        f"{before} → {after}" in "a → b → c → a → b" for before, after in itertools.pairwise(path)
    )


def test_dependents_take_no_timing(app):
    for name in ("when", "misfire", "jitter", "exclude"):
        with pytest.raises(TypeError, match=rf"then_include\(\) takes no keyword '{name}'"):
            app.manifest("a").then_include("b", job="quiet", **{name: None})


@pytest.mark.parametrize(
    ("items", "key"),
    [
        ({"ada": Customer(1, "Ada"), "grace": Customer(2, "Grace")}, None),
        ([("ada", Customer(1, "Ada")), ("grace", Customer(2, "Grace"))], None),
        ([Item("ada", Customer(1, "Ada")), Item("grace", {"id": 2, "name": "Grace"})], None),
        ([Customer(1, "Ada"), Customer(2, "Grace")], lambda customer: customer.name.lower()),
    ],
)
def test_a_batch_takes_its_items_in_many_shapes(app, items, key):
    app.schedule_many("crm", job="sync", items=items, key=key, when=HOURLY)
    definitions = app.definitions()
    assert {manifest.external_id: manifest.input for manifest in definitions.manifests} == {
        "crm-ada": {"id": 1, "name": "Ada"},
        "crm-grace": {"id": 2, "name": "Grace"},
    }
    assert {(manifest.group, manifest.batch) for manifest in definitions.manifests} == {
        ("crm", "crm")
    }
    assert definitions.batches == (Batch(name="crm", prune=True),)


def test_a_batch_looks_at_its_items_once(app):
    app.schedule_many("crm", job="work", items=((n, n) for n in range(3)), when=HOURLY)
    assert len(app.definitions().manifests) == 3
    assert len(app.definitions().manifests) == 3


def test_an_empty_batch_is_a_batch(app):
    app.schedule_many("crm", job="work", items=[], when=HOURLY, prune=False, group="ops")
    definitions = app.definitions()
    assert definitions.manifests == ()
    assert definitions.batches == (Batch(name="crm", prune=False),)


def test_each_item_may_be_configured(app):
    app.schedule_many(
        "crm",
        job="work",
        items={"a": 1, "b": 2},
        when=HOURLY,
        priority=4,
        group="ops",
        configure=lambda item: {"priority": 9, "when": daily("03:00")} if item.id == "b" else {},
    )
    a, b = app.definitions().manifests
    assert (a.priority, a.timing, a.group) == (4, HOURLY.timing, "ops")
    assert (b.priority, b.timing, b.group) == (9, daily("03:00").timing, "ops")


def test_a_batch_of_dependents_hangs_on_the_root_or_on_its_items_parents(app):
    app.schedule_many("extract", job="work", items={"a": 1, "b": 2}, when=HOURLY).include_many(
        "load",
        job="work",
        items=[Item("a", 1, depends_on="extract-a"), Item("b", 2, depends_on="extract-b")],
    )
    chain = app.schedule("root", job="quiet", when=HOURLY)
    chain.include_many("fan", job="work", items={"x": 1}, dormant=True)
    chain.include("last", job="quiet").then_include_many(
        "tail", job="work", items=[Item("x", 1, depends_on="fan-x")]
    )
    assert parents(app) == {
        "extract-a": None,
        "extract-b": None,
        "load-a": "extract-a",
        "load-b": "extract-b",
        "root": None,
        "fan-x": "root",
        "last": "root",
        "tail-x": "fan-x",
    }
    [fan] = [
        manifest for manifest in app.definitions().manifests if manifest.external_id == "fan-x"
    ]
    assert (fan.dormant, fan.batch, fan.group) == (True, "fan", "fan")


@pytest.mark.parametrize(
    ("declare", "complaint"),
    [
        (lambda app: app.manifest("a").then("a", job="quiet"), "a → a"),
        (
            lambda app: app.schedule_many("m", job="work", items=[], when=HOURLY).then(
                "x", job="quiet"
            ),
            r"'x': then_include cannot follow the batch 'm'.*app\.manifest\('m-<item>'\)",
        ),
        (
            lambda app: app.schedule_many("m", job="work", items=[], when=HOURLY).include(
                "x", job="quiet"
            ),
            "'x': include cannot follow the batch 'm'",
        ),
        (
            lambda app: (
                app.schedule("r", job="quiet", when=HOURLY)
                .include_many("m", job="work", items={})
                .then("x", job="quiet")
            ),
            "'x': then_include cannot follow the batch 'm'",
        ),
        (
            lambda app: app.schedule("r", job="quiet", when=HOURLY).then_include_many(
                "m", job="work", items={"x": 1}
            ),
            "'m-x': it has neither a cadence nor a parent: give it a depends_on",
        ),
        (
            lambda app: app.schedule_many("n", job="work", items=[], when=HOURLY).include_many(
                "m", job="work", items={"x": 1}
            ),
            "'m-x': it has neither a cadence nor a parent",
        ),
        (
            lambda app: app.schedule_many(
                "m", job="work", items=[Item("x", 1, depends_on="y")], when=HOURLY
            ).include_many("y", job="work", items=[]),
            "'m-x': it has both a cadence and a parent",
        ),
        (
            lambda app: app.schedule_many("m", job="work", items=["ab"], when=HOURLY),
            "batch 'm': its item 1 is neither an Item nor an .* give key=",
        ),
        (
            lambda app: app.schedule_many(
                "m", job="work", items={"x": 1}, when=HOURLY, configure=lambda item: {"prio": 1}
            ),
            "'m-x': configure gives 'prio', unknown here; did you mean 'priority'",
        ),
        (
            lambda app: [
                app.schedule_many("m", job="work", items={}, when=HOURLY) for _ in range(2)
            ],
            "batch 'm' is declared twice",
        ),
        (
            lambda app: app.schedule_many("m.n", job="work", items={}, when=HOURLY),
            "batch name 'm.n' is not valid",
        ),
        (
            lambda app: app.schedule_many("m", job="work", items=[(1, 1), ("1", 2)], when=HOURLY),
            "two manifests have the id 'm-1'",
        ),
        (
            lambda app: [
                app.schedule_many("m", job="work", items={"eu-1": 1}, when=HOURLY),
                app.schedule_many("m-eu", job="work", items={"1": 1}, when=HOURLY),
            ],
            "two manifests have the id 'm-eu-1'",
        ),
        (
            lambda app: app.schedule_many("m", job="sync", items={"x": 1}, when=HOURLY),
            "'m-x': its input does not fit job 'sync'",
        ),
        (
            lambda app: app.schedule("x", job="quiet", when=HOURLY, group="a.b"),
            "group name 'a.b' is not valid",
        ),
        (
            lambda app: app.schedule("x", job="quiet", when=HOURLY, retry=3),
            "'x': retry=3 is not a retry policy",
        ),
        (
            lambda app: app.schedule("x", job=None, when=HOURLY),
            "'x' names the job 'None', which is not declared",
        ),
        (
            lambda app: app.schedule("x", job="quiet", when=None),
            r"'x': when= takes a cadence such as daily\('03:15'\), not None",
        ),
        (
            lambda app: app.schedule_many("m", job="work", items={"x": 1}, when="daily"),
            "batch 'm': when= takes a cadence .* not 'daily'",
        ),
        (
            lambda app: app.schedule_many(
                "m", job="work", items={"x": 1}, when=HOURLY, configure=lambda item: {"when": 5}
            ),
            "manifest 'm-x': when= takes a cadence .* not 5",
        ),
        (
            lambda app: app.schedule_many("m", job="work", items={"a b": 1}, when=HOURLY),
            "manifest id 'm-a b' is not valid",
        ),
        (lambda app: app.group(5), "group name 5 is not valid"),
        (
            lambda app: app.schedule("x", job=print, when=HOURLY),
            "'x' names the job 'print', which is not declared",
        ),
        (
            lambda app: app.schedule("x", job="quiet", when=HOURLY, priority=32),
            "'x': priority 32 is not valid: use a whole number from 0 to 31",
        ),
        (
            lambda app: app.schedule("x", job="quiet", when=HOURLY, jitter=1e6),
            "'x': jitter 1000000.0 is not valid: use a number of seconds from 0 to 86400",
        ),
    ],
)
def test_an_invalid_schedule_is_reported_in_one_line(app, declare, complaint):
    declare(app)
    # Ignore the missing parent, a consequence of the mistake itself.
    [problem] = [problem for problem in problems(app) if "does not declare" not in problem]
    assert re.search(complaint, problem)


def test_batches_whose_names_overlap_are_fine_while_their_ids_differ(app):
    app.schedule_many("m", job="work", items={"1": 1}, when=HOURLY)
    app.schedule_many("m-eu", job="work", items={"1": 1}, when=HOURLY)
    app.schedule("m-single", job="work", when=HOURLY)
    assert {(manifest.external_id, manifest.batch) for manifest in app.definitions().manifests} == {
        ("m-1", "m"),
        ("m-eu-1", "m-eu"),
        ("m-single", None),
    }


def test_a_wide_batch_searches_once_for_a_fire(app, monkeypatch):
    looked = []
    monkeypatch.setattr(
        "headway_decisions.timing.timing.next_allowed",
        lambda timing, after: looked.append(timing) or after,
    )
    when = every(hours=1, start="2031-02-03")
    app.schedule_many("m", job="work", items={n: n for n in range(1000)}, when=when)
    assert len(app.definitions().manifests) == 1000
    assert looked == [when.timing]
