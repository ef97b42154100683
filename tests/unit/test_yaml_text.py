"""YAML as text: scalars, keys, anchors, and texts that are refused."""

import pytest
from headway import (
    load_yaml,
)
from headway.yaml_file import nodes
from support.definitions import problems


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
