"""Definitions in YAML are the same as in Python."""

import jsonschema_rs
import pytest
from headway import (
    LAST,
    App,
    InvalidDefinitions,
    Item,
    Months,
    allow,
    catch_up,
    cron,
    daily,
    every,
    exclude_dates,
    exclude_days,
    exclude_range,
    exclude_times,
    load_yaml,
    manual,
    monthly,
    monthly_dow,
    once,
    retry,
    skip_missed,
    spaced,
    weekly,
)
from headway.yaml_file import nodes, read_app
from headway_contract.work import RetryPolicy

from generators.definitions_schema import schema

JOB = "app: shop\njobs: {work: }\n"


@pytest.mark.parametrize(
    ("stated", "when"),
    [
        ('cron: "15 3 * * *"', cron("15 3 * * *")),
        ("cron: {expression: 0 * * * *, days: [mon]}", cron("0 * * * *", days="mon")),
        ("daily: 03:15", daily("03:15")),
        ("daily: '3:15'", daily("03:15")),
        ("daily: 12:30:00", daily("12:30:00")),
        ("daily: 03:15\n    days: weekdays\n    tz: Europe/Oslo", daily("03:15", days="weekdays", tz="Europe/Oslo")),
        ("daily: {at: 03:15, months: [jan, 4]}", daily("03:15", months=Months.JAN | Months.APR)),
        ("every: {minutes: 5, between: 09:00-17:00}", every(minutes=5, between="09:00-17:00")),
        ("every: {hours: 0.5, days: weekends}", every(hours=0.5, days="weekends")),
        ("every: {days: 2, at: 04:00, start: 2027-01-01}", every(days=2, at="04:00", start="2027-01-01")),
        ("weekly: {days: [fri, mon], at: 06:00, every: 2}", weekly(["mon", "fri"], "06:00", every=2)),
        ("monthly: {days: [01, last], at: 00:30}", monthly([1, LAST], "00:30")),
        ("monthly: {days: last, at: 00:30, weeks: last}", monthly(LAST, "00:30", weeks="last")),
        ("monthly: {days: 13, at: 09:00, weekdays: fri}", monthly(13, "09:00", weekdays="fri")),
        ("monthly: {days: 13, at: 09:00}\n    weekdays: [fri, sat]", monthly(13, "09:00", weekdays=["fri", "sat"])),
        ("every: {days: 2, at: 09:00}\n    weekdays: weekdays", every(days=2, at="09:00", weekdays="weekdays")),
        ("weekly: {days: [fri, mon], at: 06:00, weekdays: mon}", weekly(["mon", "fri"], "06:00", weekdays="mon")),
        ("daily: 03:15\n    weekdays: weekends", daily("03:15", days="weekends")),
        ("monthly_dow: {weeks: [first, last], days: mon, at: 06:00}", monthly_dow(["first", "last"], "mon", "06:00")),
        ("once: 2027-06-01 09:00", once("2027-06-01 09:00")),
        ("once: {at: 2027-06-01 09:00, tz: Europe/Oslo}", once("2027-06-01 09:00", tz="Europe/Oslo")),
        ("spaced: {minutes: 10}", spaced(minutes=10)),
        ("manual: true", manual()),
    ],
)  # fmt: skip
def test_cadences_equal_those_in_python(stated, when):
    [manifest] = load_yaml(f"{JOB}manifests:\n  one:\n    job: work\n    {stated}\n").manifests
    assert manifest.timing == when.timing


def test_a_file_equals_python():
    app = App("shop", generation=4)
    app.group("ops", max_active=2, priority=3, enabled=False)

    @app.job("work", title="Work", category="Ops", description="Works.", group="ops", timeout=60,
             cancel_grace=5, priority=2, on_lost_contact="continue", on_dead_letter="go_on",
             labels={"team": "data", "tier": "2"})  # fmt: skip
    def work(ctx, thing): ...

    @app.job("quiet")
    def quiet(ctx): ...

    app.schedule(
        "one",
        job=work,
        when=daily("03:15", tz="Europe/Oslo"),
        input={"deep": [1, None, "x"]},
        group="other",
        priority=1,
        timeout=9,
        cancel_grace=1,
        on_lost_contact="stop",
        on_dead_letter="block",
        labels={"tier": "1"},
        retry=RetryPolicy(attempts=5, interval_seconds=1),
        misfire=catch_up(3, threshold=5),
        overlap=allow(2),
        jitter=7,
        enabled=False,
        exclude=[
            exclude_days("sat", "sun"),
            exclude_dates("2027-12-24"),
            exclude_range("2027-08-01", "2027-08-14"),
            exclude_times("22:00-03:00"),
        ],
    ).then("two", job=quiet, dormant=True)
    app.schedule(
        "three", job=quiet, when=every(hours=1), misfire=skip_missed(), overlap="queue_one"
    )
    app.schedule_many("many", job=work, items={"a": 1, "b": None}, when=every(hours=2), prune=False)
    app.manifest("three").include_many(
        "after", job=work, items=[Item("a", 1, depends_on="many-a"), Item("b", 2)], group="ops"
    )
    assert (
        load_yaml(
            """
app: shop
generation: 4
groups:
  ops: {max_active: 2, priority: 3, enabled: false}
jobs:
  work:
    title: Work
    category: Ops
    description: Works.
    group: ops
    timeout: 60
    cancel_grace: 5
    priority: 2
    on_lost_contact: continue
    on_dead_letter: go_on
    labels: {team: data, tier: "2"}
  quiet: {takes_input: false}
manifests:
  one:
    job: work
    daily: {at: 03:15, tz: Europe/Oslo}
    input: {deep: [1, null, x]}
    group: other
    priority: 1
    timeout: 9
    cancel_grace: 1
    on_lost_contact: stop
    on_dead_letter: block
    labels: {tier: "1"}
    retry: {attempts: 5, interval: 1}
    misfire: {policy: catch_up, limit: 3, threshold: 5}
    overlap: {allow: 2}
    jitter: 7
    enabled: false
    exclude:
      - days: weekends
        dates: 2027-12-24
        range: [2027-08-01, 2027-08-14]
      - times: 22:00-03:00
  two: {job: quiet, depends_on: one, dormant: true}
  three: {job: quiet, every: {hours: 1}, misfire: skip, overlap: queue_one}
batches:
  many: {job: work, every: {hours: 2}, items: {a: 1, b: null}, prune: false}
  after:
    job: work
    depends_on: three
    group: ops
    items: [{id: a, input: 1, depends_on: many-a}, {id: b, input: 2}]
"""
        )
        == app.definitions()
    )


def test_items_state_terms_of_their_own_as_configure_does_in_python():
    app = App("shop")
    app.job("work")(lambda ctx, given: None)
    own = {
        "a": {
            "priority": 9,
            "timeout": 60,
            "cancel_grace": 5,
            "retry": retry(attempts=7),
            "overlap": allow(2),
            "misfire": "skip",
            "exclude": exclude_days("sun"),
            "jitter": 3,
            "labels": {"tier": "1"},
            "group": "ops",
            "enabled": False,
            "on_dead_letter": "go_on",
            "start_within": 30,
            "concurrency_key": "one",
            "concurrency_limit": 2,
            "on_lost_contact": "continue",
        },
        "b": {"when": daily("03:15", weekdays="weekdays", tz="Europe/Oslo")},
        "c": {"when": manual()},
        "d": {},
    }
    app.schedule_many(
        "many", job="work", items=dict.fromkeys(own, 1), when=every(minutes=5), jitter=30,
        configure=lambda item: own[item.id],
    )  # fmt: skip
    text = f"""{JOB}
batches:
  many:
    job: work
    every: {{minutes: 5}}
    jitter: 30
    items:
      - id: a
        input: 1
        priority: 9
        timeout: 60
        cancel_grace: 5
        retry: {{attempts: 7}}
        overlap: {{allow: 2}}
        misfire: skip
        exclude: {{days: sun}}
        jitter: 3
        labels: {{tier: "1"}}
        group: ops
        enabled: false
        on_dead_letter: go_on
        start_within: 30
        concurrency_key: one
        concurrency_limit: 2
        on_lost_contact: continue
      - {{id: b, input: 1, daily: 03:15, weekdays: weekdays, tz: Europe/Oslo}}
      - {{id: c, input: 1, manual: true}}
      - {{id: d, input: 1}}
"""
    assert load_yaml(text).manifests == app.definitions().manifests
    validator = jsonschema_rs.validator_for(schema(), offline=True)
    validator.validate(nodes.plain(nodes.parse(text)))


def test_a_batch_needs_no_cadence_if_its_items_have_one_or_a_parent():
    text = f"""{JOB}
batches:
  many:
    job: work
    jitter: 5
    items: [{{id: a, daily: 03:15}}, {{id: b, depends_on: many-a}}, {{id: c, manual: true}}]
"""
    found = {manifest.external_id: manifest for manifest in load_yaml(text).manifests}
    assert found["many-a"].timing == daily("03:15").timing
    assert found["many-b"].depends_on == "many-a"
    assert [found[f"many-{key}"].jitter_seconds for key in "abc"] == [5, 0, 0]
    validator = jsonschema_rs.validator_for(schema(), offline=True)
    validator.validate(nodes.plain(nodes.parse(text)))


def test_kinds_of_failure_are_names_alone_or_in_a_list():
    definitions = load_yaml(
        "app: etl\n"
        "jobs: {work: {retry: {retry_on: [OSError, timed_out], abort_on: Stolen}}}\n"
        "manifests: {m: {job: work, every: {hours: 1}}}\n"
    )
    policy = definitions.manifests[0].retry
    assert (policy.retry_on, policy.abort_on) == (("OSError", "timed_out"), ("Stolen",))


def test_the_job_s_retry_and_schema_reach_its_manifests_and_definition():
    definitions = load_yaml(
        "app: shop\n"
        "jobs: {work: {retry: {attempts: 9}, input_schema: {type: integer}}}\n"
        "manifests: {one: {job: work, manual: true, input: 1}}\n"
    )
    assert definitions.manifests[0].retry == RetryPolicy(attempts=9)
    assert definitions.jobs[0].input_schema == {"type": "integer"}
    assert definitions.jobs[0].takes_input


def test_an_app_from_yaml_has_definitions_but_no_bodies():
    app = read_app(f"{JOB}generation: 2\n")
    assert (app.name, app.definitions().generation) == ("shop", 2)
    with pytest.raises(InvalidDefinitions, match="declares jobs without bodies"):
        app.jobs  # noqa: B018
