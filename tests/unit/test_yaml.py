"""Definitions in YAML: the same as in Python, with line numbers in error messages."""

import re
from pathlib import Path

import jsonschema_rs
import msgspec
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
from headway.define.inputs import problem_of_input, problem_of_schema
from headway.yaml_file import nodes, read_app
from headway.yaml_file.records import CADENCES
from headway_contract.work import RetryPolicy

from generators.definitions_schema import schema

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "headway.yaml"
JOB = "app: shop\njobs: {work: }\n"


def problems(text: str | Path) -> list[str]:
    with pytest.raises(InvalidDefinitions) as caught:
        load_yaml(text)
    return caught.value.problems


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


@pytest.mark.parametrize(
    ("stated", "problem"),
    [
        ("monthly: {days: 13, at: 09:00}, days: fri", "has days in monthly and beside it: write it once; the filter is weekdays"),
        ("every: {days: 2, at: 09:00}, days: fri", "has days in every and beside it: write it once; the filter is weekdays"),
        ("every: {hours: 2, days: mon}, days: fri", "has days in every and beside it: write it once"),
        ("daily: {at: 09:00, days: mon, weekdays: mon}", "days and weekdays are the same filter here: use one of them"),
        ("daily: 09:00, days: mon, weekdays: mon", "days and weekdays are the same filter here: use one of them"),
        ("manual: true, weekdays: mon", "manual takes only true, and no filters"),
    ],
)  # fmt: skip
def test_a_filter_on_weekdays_is_stated_once(stated, problem):
    [found] = problems(f"{JOB}manifests:\n  one: {{job: work, {stated}}}\n")
    assert found.endswith(problem)


def test_problems_of_one_cadence_are_reported_in_a_fixed_order():
    filters = "tz: UTC, months: 1, weekdays: mon, start: 2027-01-01, end: 2028-01-01, weeks: last"
    cadence = f"daily: {{at: 01:30, {filters}}}, {filters}"
    found = problems(f"{JOB}manifests:\n  one: {{job: work, {cadence}}}\n")
    named = [problem.partition(" has ")[2].split()[0] for problem in found]
    assert named == ["weekdays", "months", "start", "end", "tz", "weeks"]


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


def test_problems_of_items_are_reported_with_their_lines():
    text = f"""{JOB}
batches:
  many:
    job: work
    daily: 03:15
    items:
      - {{id: a, priority: 99, timeout: -1, colour: red}}
      - {{id: b, cron: 61 * * * *, retry: {{attempts: 0}}}}
      - {{id: c, days: mon}}
      - {{id: d, daily: 03:15, cron: 0 * * * *}}
      - {{id: e, manual: true, jitter: 5}}
      - {{id: f, depends_on: many-a, jitter: 5}}
  more:
    job: work
    depends_on: many-a
    items: [{{id: a, daily: 03:15}}, {{id: b, jitter: 5}}]
  most:
    job: work
    tz: Europe/Oslo
    items: [{{id: a, daily: 03:15}}, {{id: b}}]
"""
    expected = [
        "line 9: batch 'many': items 'a': priority 99 is not valid: use a whole number from 0 to 31",
        "line 9: batch 'many': items 'a': timeout -1 is not valid",
        "line 9: batch 'many': items 'a' has the unknown key 'colour'",
        "line 10: batch 'many': items 'b': retry: attempts 0 is not valid",
        "line 10: manifest 'many-b': cron expression '61 * * * *' is not valid",
        "line 11: manifest 'many-c' has days but no cadence: add the cadence",
        "line 12: manifest 'many-d' has several cadences (cron, daily)",
        "line 13: manifest 'many-e': jitter has no effect on a manual cadence",
        "line 14: manifest 'many-f' depends on another manifest, so it takes no jitter",
        "line 14: manifest 'many-f' has both a cadence and a parent",
        "line 18: manifest 'more-a' depends on another manifest, so it takes no daily",
        "line 18: manifest 'more-b' depends on another manifest, so it takes no jitter",
        "line 19: batch 'most' has tz but no cadence: add the cadence",
        "line 22: manifest 'most-b' has neither a cadence nor a parent",
    ]
    found = problems(text)
    for line in expected:
        assert any(problem.startswith(line) for problem in found), line
    assert len(found) == len(expected)


def test_a_cadence_without_a_value_is_none_and_never_a_manual_one():
    text = f"""{JOB}
manifests:
  one: {{job: work, every: }}
batches:
  many: {{job: work, daily: , items: {{a: 1}}}}
  more: {{job: work, dormant: true, items: [{{id: a, manual: true}}]}}
"""
    assert [problem.partition(":")[2] for problem in problems(text)] == [
        f" manifest 'one' has no cadence: write one of {', '.join(CADENCES)} or depends_on",
        f" batch 'many' has no cadence: write one of {', '.join(CADENCES)} or depends_on",
        " batch 'more' is dormant, so its items take no cadence",
        " manifest 'many-a' has neither a cadence nor a parent: give it a depends_on",
    ]


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


WRONG = """\
app: api
generatoin: 3
groups: {a b: {max_active: 2}, ops: {max_active: lots}}
jobs:
  x: {input_schema: {type: nope}}
  y: {timeout: soon, group: a.b, takes_input: off}
  z: {input_schema: {type: integer}}
  n: {takes_input: false, input_schema: {}}
  a job: {}
manifests:
  one: {job: x, daily: 25:15}
  two: {job: x, daily: {days: mon}}
  three: {job: nobody, every: {minutes: 5}, tz: Mars/Base}
  four: {every: {minutes: 5}}
  five: {job: x}
  six: {job: x, cron: "* * * * *", daily: 03:15}
  seven: {job: x, depends_on: eight, jitter: 5}
  eight: {job: x, depends_on: seven}
  nine: {job: x, depends_on: gone}
  ten: {job: z, manual: true, input: text}
  eleven: {job: x, manual: true, titel: 5}
  twelve: {job: 12, every: {minutes: 1}}
  thirteen: {job: x, once: 2027-06-01 09:00, days: weekday, exclude: {dates: 2027-13-01}}
  fourteen: 5
  fifteen: {job: x, weekly: {days: mon, at: 06:00}, days: fri}
  sixteen: {job: x, manual: false}
  seventeen: {job: x, manual: true, dormant: true}
  a manifest: {job: x, manual: true}
  eighteen: {job: x, manual: true, misfire: {policy: never}, overlap: allow}
batches:
  b: {job: z, every: {minutes: 1}, items: {a: 1, b: x}}
  c: {job: z, items: [{id: a, depends_on: b-a, input: 1}, {id: b, input: 1}, {input: 1}]}
  d: {job: z, manual: true, items: [{id: b, depends_on: b-a, input: 1}]}
  e: {job: z, manual: true}
"""


def test_all_problems_are_reported_at_once_with_their_lines():
    found = problems(WRONG)
    expected = [
        "line 1: app name 'api' is reserved",
        "line 2: the file has the unknown key 'generatoin'; did you mean 'generation'?",
        "line 3: group name 'a b' is not valid",
        "line 3: group 'ops': max_active 'lots' is not valid: use a whole number from 0 to 1000000",
        "line 5: job 'x': its input_schema: at type: \"nope\"",
        "line 6: job 'y': timeout 'soon' is not valid: use a number above 0, up to 302400",
        "line 6: group name 'a.b' is not valid",
        "line 6: job 'y': takes_input 'off' is not valid: use true or false",
        "line 8: job 'n' has an input_schema but takes no input",
        "line 9: job name 'a job' is not valid",
        "line 11: manifest 'one': time of day '25:15' is not valid",
        "line 12: manifest 'two': daily lacks the key 'at'",
        "line 13: manifest 'three' names the job 'nobody', which is not declared: declare it under",
        "line 13: manifest 'three': time zone 'Mars/Base'",
        "line 14: manifest 'four' lacks the key 'job'",
        "line 15: manifest 'five' has no cadence: write one of cron",
        "line 16: manifest 'six' has several cadences (cron, daily)",
        "line 17: manifest 'seven' depends on another manifest, so it takes no jitter",
        "manifests form a dependency cycle: seven → eight → seven",
        "line 19: manifest 'nine' depends on 'gone'",
        "line 20: manifest 'ten': its input does not fit job 'z'",
        "line 21: manifest 'eleven' has the unknown key 'titel'",
        "line 22: manifest 'twelve': job 12 is not valid: use text such as 'billing'; put it in quotes",
        "line 23: manifest 'thirteen': 'weekday' is not a weekday",
        "line 23: manifest 'thirteen': '2027-13-01' is not a date to exclude",
        "line 24: manifest 'fourteen' is not valid: write a mapping",
        "line 25: manifest 'fifteen' has days in weekly and beside it",
        "line 26: manifest 'sixteen': manual takes only true",
        "line 27: manifest 'seventeen' is dormant and has no parent: set depends_on",
        "line 28: manifest id 'a manifest' is not valid",
        "line 29: manifest 'eighteen': misfire: policy 'never' is not valid: use 'catch_up' or 'fire_once' or 'skip'",
        "line 29: manifest 'eighteen': overlap 'allow' is not valid: use 'cancel_running' or 'queue_one' or 'skip' or a mapping",
        "line 29: manifest 'eighteen': misfire has no effect on a manual cadence",
        "line 31: manifest 'b-b': its input does not fit job 'z'",
        "line 32: batch 'c': items lacks the key 'id'",
        "line 32: manifest 'c-b' has neither a cadence nor a parent",
        "line 33: manifest 'd-b' has both a cadence and a parent",
        "line 34: batch 'e' lacks the key 'items'",
    ]
    for line in expected:
        assert any(problem.startswith(line) for problem in found), line
    assert len(found) == len(expected)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "line 1: it is empty"),
        ("# nothing\n", "line 1: it is empty"),
        ("app: [", "line 2: did not find expected node content"),
        ("- app", "line 1: the file is not valid: write a mapping"),
        ("app: a\napp: b", "line 2: the key 'app' appears twice (first in line 1)"),
        ("app: a\nx-a: {k: 1,\n  k: 2}", "line 3: the key 'k' appears twice (first in line 2)"),
        ("app: &a [*a]", "line 1: &a contains itself"),
        ("app: *b", "line 1: unknown anchor &b"),
        ("app: !!python/object/apply:os.getcwd []", "line 1: the tag 'tag:yaml.org,2002:python/"),
        ("app: !mine x", "line 1: the tag '!mine' is not supported"),
        ("app: a\n---\napp: b", "line 2: a second document begins"),
        ("? [a]\n: b", "line 1: a key must be a scalar"),
        ("app: " + "[" * 5000 + "]" * 5000, "line 1: it is nested deeper than 100 levels"),
        ("app: \x00", "line 1: unacceptable character"),
        ("app: a\nx-a:\n  <<: 5", "line 3: << takes a mapping"),
        (" " * (nodes.MOST_BYTES + 1), "line 1: it is larger than 8 MiB"),
    ],
)
def test_text_that_is_not_the_yaml_we_take(text, problem):
    [found] = problems(text)
    assert found.startswith(problem)


def test_aliases_cannot_blow_a_small_text_up():
    lines = ["x-0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"x-{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    [found] = problems("\n".join(lines))
    assert found == "line 6: it holds more than 1000000 values"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"), ("on", "on"), ("off", "off"), ("n", "n"),
        ("true", True), ("False", False), ("null", None), ("~", None), ("", None),
        ("03:15", "03:15"), ("12:30:00", "12:30:00"), ("2027-06-01", "2027-06-01"),
        ("2027-06-01 09:00", "2027-06-01 09:00"), ("1_000", "1_000"), ("010", 10),
        ("0x10", "0x10"), ("12", 12), ("-12", -12), ("1.5", 1.5), (".5", 0.5), ("1e3", 1000.0),
        (".nan", ".nan"), ("'12'", "12"), ('"true"', "true"), ("!!str 12", "12"),
        ("9" * 5000, "9" * 5000), ("1e999", "1e999"), ("1.2.3", "1.2.3"), ("|\n  a\n  b", "a\nb"),
    ],
)  # fmt: skip
def test_scalars_are_read_as_yaml_1_2_means_them(text, value):
    found = nodes.plain(nodes.parse(f"key: {text}"))["key"]
    assert found == value
    assert type(found) is type(value)


def test_keys_are_always_text():
    assert nodes.plain(nodes.parse("1: a\non: b\ntrue: c\n03:15: d")) == {
        "1": "a",
        "on": "b",
        "true": "c",
        "03:15": "d",
    }


def test_anchors_and_merges_save_typing():
    definitions = load_yaml(
        "app: shop\n"
        "jobs: {work: }\n"
        "x-base: &base {job: work, every: {hours: 1}, jitter: 5}\n"
        "x-more: &more {jitter: 7, priority: 3}\n"
        "manifests:\n"
        "  one: {<<: *base, priority: 9}\n"
        "  two: {<<: [*more, *base]}\n"
        "  three: *base\n"
    )
    assert [(manifest.jitter_seconds, manifest.priority) for manifest in definitions.manifests] == [
        (5, 9),
        (7, 3),
        (5, 0),
    ]


def test_problems_of_a_file_begin_with_its_name(tmp_path):
    path = tmp_path / "shop.yaml"
    path.write_text("app: shop\nmanifests:\n  one: {job: gone, manual: true}\n")
    for given in (path, str(path)):
        [problem] = problems(given)
        assert problem.startswith(f"{path}:3: manifest 'one' names the job 'gone'")
    [missing] = problems(tmp_path / "none.yaml")
    assert missing.endswith("none.yaml: it cannot be read: No such file or directory")
    path.write_bytes(b"app: \xff")
    assert "it is not encoded in UTF-8" in problems(path)[0]
    path.write_bytes(b"\xef\xbb\xbfapp: shop\n")
    assert load_yaml(path).owner == "shop"


def test_an_app_from_yaml_has_definitions_but_no_bodies():
    app = read_app(f"{JOB}generation: 2\n")
    assert (app.name, app.definitions().generation) == ("shop", 2)
    with pytest.raises(InvalidDefinitions, match="declares jobs without bodies"):
        app.jobs  # noqa: B018


def test_the_example_is_sound_and_fits_the_schema_for_editors():
    definitions = load_yaml(EXAMPLE)
    assert definitions.owner == "warehouse"
    assert len(definitions.manifests) == 15
    validator = jsonschema_rs.validator_for(schema(), offline=True)
    validator.validate(nodes.plain(nodes.parse(EXAMPLE.read_text())))


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "app: a b",
        "app: shop\njob: {}",
        "app: shop\njobs: {work: {timeout: soon}}",
        "app: shop\nmanifests: {one: {daily: 03:15}}",
        "app: shop\nmanifests: {one: {job: work}}",
        "app: shop\nmanifests: {one: {job: work, daily: 03:15, manual: true}}",
        "app: shop\nmanifests: {one: {job: work, daily: quarter past three}}",
        "app: shop\nmanifests: {one: {job: work, daily: {at: 03:15, days: moon}}}",
        "app: shop\nmanifests: {one two: {job: work, manual: true}}",
        "app: shop\nbatches: {one: {job: work, manual: true}}",
        "app: shop\nbatches: {one: {job: work, items: {a: 1}}}",
        "app: shop\nbatches: {one: {job: work, items: []}}",
        "app: shop\nbatches: {one: {job: work, items: [{id: a}]}}",
        "app: shop\nbatches: {one: {job: work, items: [{id: a, daily: 03:15}, {id: b}]}}",
        "app: shop\nbatches: {one: {job: work, daily: 03:15, manual: true, items: {a: 1}}}",
        "app: shop\nbatches: {one: {job: work, daily: 03:15, depends_on: x, items: {a: 1}}}",
        "app: shop\nbatches: {one: {job: work, manual: true, items: [{id: a, priority: 99}]}}",
        "app: shop\nbatches: {one: {job: work, manual: true, items: [{id: a, daily: 03:15, once: 2027-06-01 09:00}]}}",
    ],
)
def test_the_schema_for_editors_rejects_broken_files(text):
    validator = jsonschema_rs.validator_for(schema(), offline=True)
    assert not validator.is_valid(nodes.plain(nodes.parse(text)))
    assert problems(f"{text}\n")


def test_the_schema_for_editors_is_a_valid_one():
    jsonschema_rs.meta.validate(schema())


@pytest.mark.parametrize(
    ("schema_of_job", "takes_input", "value", "problem"),
    [
        (None, True, {"any": "thing"}, None),
        (None, False, None, None),
        (None, False, 0, "the job takes no input"),
        ({"type": "integer"}, True, 3, None),
        ({"type": "integer"}, True, None, 'null is not of type "integer"'),
        ({"properties": {"a": {"type": "string"}}}, True, {"a": 1}, 'at a: 1 is not of type "string"'),
        ({"items": {"type": "string"}}, True, [1, 2, 3], 'at 0: .* \\(and 2 more\\)'),
        ({"type": "object"}, True, {1: 2}, "Dict key must be str"),
        ({"type": "nope"}, True, 1, "at type"),
        ({"pattern": "^(a+)+$"}, True, "a" * 60 + "!", "."),
        ({"enum": ["x" * 1000]}, True, 1, "…$"),
    ],
)  # fmt: skip
def test_inputs_are_held_against_the_job_s_schema(schema_of_job, takes_input, value, problem):
    found = problem_of_input(schema_of_job, takes_input, value)
    assert found is None if problem is None else re.search(problem, str(found))
    assert found is None or len(found) < 350


@pytest.mark.parametrize(
    "wrong",
    [
        5,
        True,
        [],
        {"type": "nope"},
        {"pattern": "("},
        {"$ref": "#/$defs/gone"},
        {"$ref": "http://127.0.0.1:1/schema.json"},
        {"$ref": "file:///etc/hostname"},
        {"$schema": "http://example.com/of-my-own"},
    ],
)
def test_a_schema_is_a_json_schema_that_refers_only_to_itself(wrong):
    assert problem_of_schema(wrong)


def test_the_schema_of_a_python_type_judges_as_the_type_does():
    class Address(msgspec.Struct):
        street: str
        number: int | None = None

    class Customer(msgspec.Struct):
        id: int
        addresses: list[Address] = []

    app = App("shop")

    @app.job("work")
    def work(ctx, customer: Customer): ...

    [job] = app.definitions().jobs
    assert problem_of_schema(job.input_schema) is None
    fits = {"id": 1, "addresses": [{"street": "x", "number": None}]}
    assert problem_of_input(job.input_schema, job.takes_input, fits) is None
    for wrong in ({"id": "1"}, {}, None, {"id": 1, "addresses": [{}]}):
        assert problem_of_input(job.input_schema, job.takes_input, wrong)
        assert app.jobs["work"].problem_of_input(wrong)
