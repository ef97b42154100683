"""The worker protocol: its rules are numbered, its examples are true, and tests show them."""

import json
import re
from pathlib import Path

import jsonschema_rs
import pytest
from headway_contract import Event, decode

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "proto-schemas" / "PROTOCOL.md"
SCHEMAS = ROOT / "proto-schemas" / "schemas"
TEXT = PAGE.read_text()

_RULE = re.compile(r"^\*\*W(\d+)\. ", re.MULTILINE)
_EXAMPLE = re.compile(r"^```json ([^\n]+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_ROW = re.compile(r"^\| W(\d+) \| (.+) \|$", re.MULTILINE)
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
# Subjects that are not ours.
NATS = "nats"
EXAMPLES = [(names, body) for names, body in _EXAMPLE.findall(TEXT) if names != NATS]


def schema_of(name: str) -> dict:
    return json.loads((SCHEMAS / f"{name}.json").read_text())


def test_rules_are_numbered_from_1_without_a_gap():
    numbers = [int(number) for number in _RULE.findall(TEXT)]
    assert len(numbers) > 30
    assert numbers == list(range(1, len(numbers) + 1))


def test_every_rule_that_is_referred_to_exists():
    referred = {int(number) for number in re.findall(r"\bW(\d+)\b", TEXT)}
    assert referred == {int(number) for number in _RULE.findall(TEXT)}


@pytest.mark.parametrize(("names", "body"), EXAMPLES, ids=[names for names, _ in EXAMPLES])
def test_an_example_is_what_its_schema_says(names, body):
    value = json.loads(body)
    parts = value if isinstance(value, list) else [value]
    for name, part in zip(names.split(", "), parts, strict=True):
        jsonschema_rs.validate(schema_of(name), part)
        if "specversion" in part:
            [event] = decode(json.dumps(part).encode())
            assert isinstance(event, Event)
            assert event.type == part["type"] == name


def test_every_message_of_a_worker_has_an_example():
    shown = {name for names, _ in EXAMPLES for name in names.split(", ")}
    documented = set(re.findall(r"^\| `(headway\.[\w.]+)` \|", TEXT, re.MULTILINE))
    # A renewal is nothing but its credentials.
    assert documented - shown == {"headway.lease.renewed.v1"}
    assert len(shown) == 16


def test_what_is_no_message_of_ours_is_at_least_json():
    others = [body for names, body in _EXAMPLE.findall(TEXT) if names == NATS]
    assert others
    for body in others:
        json.loads(body)


def test_every_rule_is_shown_by_tests_that_exist():
    rows = dict(_ROW.findall(TEXT))
    assert list(rows) == _RULE.findall(TEXT)
    for rule, shown in rows.items():
        named = _TEST.findall(shown)
        assert named, f"W{rule}"
        for file, test in named:
            assert re.search(rf"^(async )?def {test}\(", (ROOT / file).read_text(), re.MULTILINE), (
                f"W{rule}: {file}::{test}"
            )
