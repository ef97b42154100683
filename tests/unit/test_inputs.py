"""Inputs are held against the schema of their job."""

import re

import msgspec
import pytest
from headway import (
    App,
)
from headway.define.inputs import problem_of_input, problem_of_schema


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
        ({"anyOf": [{"type": "number"}, {"type": "null"}]}, True, "x", 'not of type "number"$'),
        (
            {"properties": {"a": {"anyOf": [{"items": {"type": "string"}}, {"type": "null"}]}}},
            True, {"a": ["x", 1]}, 'at a.1: 1 is not of type "string"$',
        ),
        ({"anyOf": [{"type": "number"}, {"type": "array"}]}, True, "x", "any of the schemas"),
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
