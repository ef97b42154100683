"""The schema for editors agrees with the checks of a file, as far as a schema can."""

from pathlib import Path

import jsonschema_rs
import pytest
from headway import (
    InvalidDefinitions,
    load_yaml,
)
from headway.yaml_file import nodes, read_app
from support.definitions import problems

from generators.definitions_schema import schema

EXAMPLE = Path(__file__).parents[2] / "examples" / "headway.yaml"
_VALIDATOR = jsonschema_rs.validator_for(schema(), offline=True)


def _manifest(words: str) -> str:
    return f"app: shop\njobs: {{work: {{}}}}\nmanifests: {{a: {{job: work, {words}}}}}\n"


def _batch(items: str) -> str:
    batch = f"{{job: work, manual: true, items: {items}}}"
    return f"app: shop\njobs: {{work: {{}}}}\nbatches: {{b: {batch}}}\n"


def _rate(words: str) -> str:
    return f"app: shop\njobs: {{work: {{rate: {words}}}}}\ngroups: {{g: {{rate: {words}}}}}\n"


TAKEN = [
    *map(
        _manifest,
        [
            "daily: {at: 3:15, weekdays: MON}",
            "daily: {at: 23:59:59, days: [Mon, Weekdays]}",
            "weekly: {days: [SUN, mon], at: 06:00}",
            "monthly: {days: [1, last], at: 00:00}",
            "monthly_dow: {weeks: First, days: MON, at: 06:00}",
            "every: {minutes: 5, months: [JAN, 2]}",
            "every: {days: 2, at: 09:00}",
            "every: {minutes: 1.5}",
            "spaced: {days: 0.5}",
            "cron: 15 3 * * MON",
            "cron: '@daily'",
            'cron: "*/10 * * * * *"',
            "once: 2099-06-01 09:00",
            "daily: 03:15, exclude: {days: SAT}",
            "daily: 03:15, manual: null",
            "manual: true, jitter: null",
        ],
    ),
    *map(_rate, ["5/minute", "5 per 1.5 hours", "1000000/10 seconds", "05 / 0.5 days"]),
    _batch("[{id: a}, {id: 7}]"),
    "app: shop\njobs:\ngroups:\nmanifests:\nbatches:\n",
]
REFUSED = [
    *map(
        _manifest,
        [
            "daily: 24:00",
            "daily: 03:60",
            "daily: {at: 03:15, weekdays: []}",
            "daily: {at: 03:15, weekdays: monday}",
            "weekly: {days: [], at: 06:00}",
            "monthly: {days: [], at: 06:00}",
            "monthly_dow: {weeks: [], days: mon, at: 06:00}",
            "every: {}",
            "every: {minutes: 0}",
            "every: {days: [mon]}",
            "every: {minutes: 5, months: []}",
            "every: {minutes: 5, between: 10:00-24:00}",
            "spaced: {seconds: 0}",
            "cron: '@reboot'",
            "cron: ''",
            "once: 2099-06-01",
            "manual: false",
            "manual: null",
            "manual: true, jitter: 5",
            "manual: true, misfire: skip",
            "manual: true, dormant: true",
            "manual: true, start_within: 0",
            "manual: true, concurrency_key: ''",
            "daily: 03:15, tz: ''",
            "daily: 03:15, exclude: {days: []}",
            "daily: 03:15, exclude: {dates: []}",
            "depends_on: ''",
        ],
    ),
    *map(_rate, ["0/minute", "5/0 seconds", "1000001/minute", "5/0.0 hours", "often"]),
    _batch("[{id: a, depends_on: ''}]"),
    _batch("[{id: a b}]"),
    "app: api\n",
    "app: shop\njobs: {work: {takes_input: false, input_schema: {type: object}}}\n",
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
]


def _fits(text: str) -> bool:
    return bool(_VALIDATOR.is_valid(nodes.plain(nodes.parse(text))))


@pytest.mark.parametrize("text", TAKEN)
def test_accepted_files_fit_the_schema(text):
    read_app(text)
    assert _fits(text)


@pytest.mark.parametrize("text", REFUSED)
def test_rejected_files_do_not_fit_the_schema(text):
    with pytest.raises(InvalidDefinitions):
        read_app(text)
    assert problems(text)
    assert not _fits(text)


def test_the_example_is_sound_and_fits_the_schema_for_editors():
    definitions = load_yaml(EXAMPLE)
    assert definitions.owner == "warehouse"
    assert len(definitions.manifests) == 15
    _VALIDATOR.validate(nodes.plain(nodes.parse(EXAMPLE.read_text())))


def test_the_schema_for_editors_is_a_valid_one():
    jsonschema_rs.meta.validate(schema())
