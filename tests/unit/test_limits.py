"""Limits in Python and in YAML, and the messages about mistakes."""

from datetime import timedelta

import msgspec
import pytest
from headway import App, InvalidDefinitions, Rate, every, load_yaml
from headway.define.packing import problems_of
from msgspec import structs
from support.definitions import problems

IN_YAML = """
app: shop
groups:
  g: {rate: 100/minute, max_active: 3}
jobs:
  sync:
    group: g
    max_active: 5
    rate: 5/10 seconds
    counts_globally: false
    batch: 20
    concurrency_key: "customer:{input.id}"
    concurrency_limit: 2
    start_within: 60
manifests:
  plain: {job: sync, every: {hours: 1}, input: {id: 1}}
  own:
    job: sync
    every: {hours: 1}
    input: {id: 1}
    concurrency_key: "{manifest}"
    concurrency_limit: 1
    start_within: 5
"""


def in_python() -> App:
    app = App("shop")
    app.group("g", rate="100/minute", max_active=3)

    @app.job(
        "sync",
        group="g",
        max_active=5,
        rate=Rate(count=5, period_seconds=10),
        counts_globally=False,
        batch=20,
        concurrency_key="customer:{input.id}",
        concurrency_limit=2,
        start_within=timedelta(minutes=1),
    )
    def sync(ctx, customer): ...

    app.schedule("plain", job=sync, when=every(hours=1), input={"id": 1})
    app.schedule(
        "own",
        job=sync,
        when=every(hours=1),
        input={"id": 1},
        concurrency_key="{manifest}",
        concurrency_limit=1,
        start_within=5,
    )
    return app


def test_yaml_equals_python():
    made, read = in_python().definitions(), load_yaml(IN_YAML)
    assert read.groups == made.groups
    assert read.manifests == made.manifests
    assert read.jobs == made.jobs


def test_a_manifest_has_the_terms_of_its_job_unless_it_states_its_own():
    plain, own = in_python().definitions().manifests
    assert (plain.concurrency_key, plain.concurrency_limit, plain.start_within_seconds) == (
        "customer:{input.id}",
        2,
        60,
    )
    assert (own.concurrency_key, own.concurrency_limit, own.start_within_seconds) == (
        "{manifest}",
        1,
        5,
    )


def test_definitions_without_limits_look_as_they_always_did():
    """A release with more fields must not rewrite every manifest."""
    app = App("shop")
    app.job("job")(lambda ctx: None)
    app.schedule("m", job="job", when=every(hours=1))
    encoded = msgspec.json.encode(app.definitions())
    for name in ("concurrency_key", "concurrency_limit", "start_within", "max_active", "rate"):
        assert name.encode() not in encoded


@pytest.mark.parametrize(
    ("stated", "problem"),
    [
        ({"rate": "often"}, "job 'job': 'often' is not a rate: write it like '100/minute'"),
        ({"rate": 5}, "job 'job': 5 is not a rate"),
        (
            {"max_active": -1},
            "job 'job': max_active -1 is not valid: use a whole number from 0 to 1000000",
        ),
        ({"batch": 0}, "job 'job': batch 0 is not valid: use a whole number from 1 to 1000"),
        ({"batch": 5000}, "job 'job': batch 5000 is not valid: use a whole number from 1 to 1000"),
        (
            {"concurrency_limit": 0},
            "job 'job': concurrency_limit 0 is not valid: use a whole number from 1 to 1000000",
        ),
        ({"start_within": "soon"}, "job 'job': start_within='soon' is not a duration"),
        (
            {"start_within": -1},
            "job 'job': start_within -1.0 is not valid: use a number of seconds above 0",
        ),
        (
            {"concurrency_key": "{other}"},
            "job 'job': concurrency_key '{other}': 'other' is no field",
        ),
    ],
)
def test_problems_of_a_job(stated, problem):
    app = App("shop")
    app.job("job", **stated)(lambda ctx: None)
    [found] = problems(app)
    assert found.startswith(problem)


@pytest.mark.parametrize(
    ("terms", "problem"),
    [
        ({"concurrency_key": "{input.id}"}, "concurrency_key: {input.id} is missing"),
        ({"concurrency_key": 5}, "concurrency_key=5 is not text"),
        ({"concurrency_key": ""}, "concurrency_key '' is empty"),
        ({"start_within": 0.0}, "start_within 0.0 is not valid: use a number of seconds above 0"),
        ({"start_within": object}, "is not a duration"),
        ({"concurrency_limit": 0}, "concurrency_limit 0 is not valid: use a whole number from 1"),
    ],
)
def test_problems_of_a_manifest(terms, problem):
    app = App("shop")
    app.job("job", concurrency_key="of-job", start_within=60)(lambda ctx, given: None)
    app.schedule("m", job="job", when=every(hours=1), input={}, **terms)
    found = problems(app)
    assert any(line.startswith("manifest 'm'") and problem in line for line in found), found


def test_a_group_states_its_rate_once_and_readably():
    app = App("shop")
    app.group("g", rate="1/minute")
    app.group("g", rate="2/minute")
    app.group("h", rate="whenever")
    found = problems(app)
    assert any("group 'g' sets rate twice" in problem for problem in found)
    assert any("group 'h': 'whenever' is not a rate" in problem for problem in found)


def test_a_dormant_dependent_need_not_have_an_input_that_makes_a_key():
    app = App("shop")
    app.job("job", concurrency_key="{input.id}")(lambda ctx, given: None)
    app.schedule("parent", job="job", when=every(hours=1), input={"id": 1}).include(
        "child", job="job", dormant=True
    )
    assert len(app.definitions().manifests) == 2


def test_an_invalid_rate_in_a_file_is_reported_with_its_line():
    with pytest.raises(InvalidDefinitions) as caught:
        load_yaml("app: shop\ngroups:\n  g:\n    rate: 1/never\n")
    assert caught.value.problems == [
        "line 4: group 'g': '1/never' is not a rate: write it like '100/minute' or '5/10 seconds'"
    ]


def test_definitions_from_elsewhere_are_checked_too():
    definitions = in_python().definitions()
    broken = structs.replace(
        definitions,
        manifests=tuple(structs.replace(manifest, input={}) for manifest in definitions.manifests),
    )
    assert problems_of(broken) == [
        "manifest 'plain': concurrency_key: {input.id} is missing: a key is made of text and "
        "whole numbers"
    ]
