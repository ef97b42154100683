"""Problems of definitions in YAML are reported all at once, with their lines."""

import pytest
from headway import (
    load_yaml,
)
from headway.yaml_file.records import CADENCES
from support.definitions import check_beginnings, problems

JOB = "app: shop\njobs: {work: }\n"


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
    assert named == ["weekdays", "months", "weeks", "start", "end", "tz"]


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
        "line 14: manifest 'many-f': it has both a cadence and a parent",
        "line 18: manifest 'more-a' depends on another manifest, so it takes no daily",
        "line 18: manifest 'more-b': jitter has no effect on a dependent, which fires at its parent's success",
        "line 19: batch 'most' has tz but no cadence: add the cadence",
        "line 22: manifest 'most-b': it has neither a cadence nor a parent",
    ]
    check_beginnings(problems(text), expected)


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
        " manifest 'more-a': it is dormant and has no parent: give it a depends_on",
    ]


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
        "line 17: manifest 'seven': jitter has no effect on a dependent, which fires at its parent's success",
        "manifests form a dependency cycle: seven → eight → seven",
        "line 19: manifest 'nine' depends on 'gone'",
        "line 20: manifest 'ten': its input does not fit job 'z'",
        "line 21: manifest 'eleven' has the unknown key 'titel'",
        "line 22: manifest 'twelve': job 12 is not valid: use text such as 'billing'; put it in quotes",
        "line 23: manifest 'thirteen': 'weekday' is not a weekday",
        "line 23: manifest 'thirteen': dates holds '2027-13-01', which is not valid: use dates such as",
        "line 24: manifest 'fourteen' is not valid: write a mapping",
        "line 25: manifest 'fifteen' has days in weekly and beside it",
        "line 26: manifest 'sixteen': manual takes only true",
        "line 27: manifest 'seventeen': it is dormant and has no parent: give it a depends_on",
        "line 28: manifest id 'a manifest' is not valid",
        "line 29: manifest 'eighteen': misfire: policy 'never' is not valid: use 'catch_up' or 'fire_once' or 'skip'",
        "line 29: manifest 'eighteen': overlap 'allow' is not valid: use 'cancel_running' or 'queue_one' or 'skip' or a mapping",
        "line 31: manifest 'b-b': its input does not fit job 'z'",
        "line 32: batch 'c': items lacks the key 'id'",
        "line 32: manifest 'c-b': it has neither a cadence nor a parent",
        "line 33: manifest 'd-b': it has both a cadence and a parent",
        "line 34: batch 'e' lacks the key 'items'",
    ]
    check_beginnings(problems(WRONG), expected)


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
