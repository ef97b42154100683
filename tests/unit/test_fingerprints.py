"""Fingerprints of failures, and differences between inputs."""

import json

import pytest
from headway_contract.lifecycle import Failure
from headway_decisions.retries.dead_letters import (
    fingerprint,
    format_fingerprint,
    input_changes,
    mask_message,
    parse_fingerprint,
)
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("order 4711 has no address", "order 12 has no address"),
        ("took 1.5s, limit 1,000", "took 22s, limit 17"),
        (
            "no row 0f0e7c1a-5b1f-4a8e-9c51-2d9d1c9f7e55",
            "no row 11111111-5b1f-4a8e-9c51-2d9d1c9f0000",
        ),
        ("<Thing object at 0x7f3b2c>", "<Thing object at 0x11>"),
        ("key 'ada' is missing", "key 'a much longer one' is missing"),
        ('no column "x"', 'no column "y z"'),
        ("cannot open /var/lib/a/b.csv", "cannot open /tmp/c.csv"),
        (r"cannot open C:\data\a.csv", r"cannot open D:\other\b\c.csv"),
        ("customer cus_9f8a7b2 is gone", "customer cus_11aabbcc is gone"),
        ("digest deadbeefdeadbeef", "digest aaaabbbbccccdddd"),
        ("GET https://a.example/x?y=1 failed", "GET http://b.example:80/ failed"),
        ("two\n  lines", "two lines"),
    ],
)
def test_varying_parts_are_masked(first, second):
    assert mask_message(first) == mask_message(second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("order has no address", "order has no name"),
        ("key 'a' is missing", "key 'a' is there twice"),
        ("can't open the user's file", "can't close the user's file"),
        ("", "x"),
    ],
)
def test_different_messages_differ(first, second):
    assert mask_message(first) != mask_message(second)


def test_job_and_kind_count_and_stacks_do_not():
    def of(job="job", kind="ValueError", message="order 1", stack="") -> str:
        return fingerprint(job, Failure(kind=kind, message=message, stack=stack))

    assert of() == of(message="order 2", stack="line 7")
    assert len({of(), of(job="other"), of(kind="KeyError"), of(message="other")}) == 4


def test_the_version_of_the_code_goes_with_it():
    assert format_fingerprint("3f9a", "1.4.2") == "3f9a@1.4.2"
    assert format_fingerprint("3f9a", "") == "3f9a"
    assert parse_fingerprint("3f9a@1.4.2") == ("3f9a", "1.4.2")
    assert parse_fingerprint("3f9a") == ("3f9a", None), "any version"


@given(st.text(max_size=3000))
def test_any_message_has_a_fingerprint(message):
    assert len(fingerprint("job", Failure(kind="K", message=message))) == 12


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


def apply(value, changes):
    """Apply a difference to the original value."""
    for change in changes:
        steps = [step.replace("~1", "/").replace("~0", "~") for step in change.path.split("/")[1:]]
        if not change.path:
            return change.now
        target = value
        for step in steps[:-1]:
            target = target[int(step) if isinstance(target, list) else step]
        last = int(steps[-1]) if isinstance(target, list) else steps[-1]
        if change.now is UNSET:
            del target[last]
        else:
            target[last] = change.now
    return value


def as_text(value):
    """Compare strictly: Python holds `false` and `0` to be equal."""
    return json.dumps(value, sort_keys=True)


@given(JSON, JSON)
def test_a_difference_makes_the_one_out_of_the_other(was, now):
    wanted = as_text(now)
    changes = input_changes(was, now)
    assert (changes == []) == (as_text(was) == wanted)
    assert as_text(apply(was, changes)) == wanted


def test_a_difference_is_small():
    was = {"a": {"b": [1, 2], "c/d": True}, "gone": None}
    now = {"a": {"b": [1, 3], "c/d": 1}}
    assert [(change.path, change.was, change.now) for change in input_changes(was, now)] == [
        ("/gone", None, UNSET),
        ("/a/b/1", 2, 3),
        ("/a/c~1d", True, 1),
    ]
