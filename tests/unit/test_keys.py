"""Concurrency keys: templates, and messages about invalid ones."""

import pytest
from headway_decisions.capacity.keys import LONGEST_KEY, InvalidKey, check_template, render_key
from hypothesis import given
from hypothesis import strategies as st


def render(template, value):
    return render_key(template, input=value, manifest="m", group="g", job="j")


@pytest.mark.parametrize(
    ("template", "value", "key"),
    [
        ("customer:{input.id}", {"id": 7}, "customer:7"),
        ("customer:{input.id}", {"id": "x y"}, "customer:x y"),
        ("{input}", "whole", "whole"),
        ("{input.a.b-c}/{input.d}", {"a": {"b-c": 1}, "d": -2}, "1/-2"),
        ("{job}.{group}.{manifest}", None, "j.g.m"),
        ("fixed", None, "fixed"),
        ("{{x}}:{input.id}", {"id": 0}, "{x}:0"),
    ],
)
def test_keys(template, value, key):
    check_template(template)
    assert render(template, value) == key


@pytest.mark.parametrize(
    "template",
    [
        "",
        "{",
        "{}",
        "{input.}",
        "{input[0]}",
        "{input.id!r}",
        "{input.id:>5}",
        "{other}",
        "{input.a b}",
    ],
)
def test_templates_that_never_make_a_key(template):
    with pytest.raises(InvalidKey, match="write fields as"):
        check_template(template)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({}, "missing"),
        (None, "missing"),
        ([1], "missing"),
        ({"id": None}, "missing"),
        ({"id": 1.5}, "of type float"),
        ({"id": True}, "of type bool"),
        ({"id": {"a": 1}}, "of type dict"),
    ],
)
def test_inputs_that_make_no_key(value, found):
    with pytest.raises(InvalidKey, match=rf"\{{input.id\}} is {found}"):
        render("customer:{input.id}", value)


@pytest.mark.parametrize("value", ["", "x" * (LONGEST_KEY + 1), "a\0b"])
def test_keys_that_cannot_be_stored(value):
    with pytest.raises(InvalidKey, match="from 1 to 255"):
        render("{input}", value)


@given(
    st.text(), st.one_of(st.none(), st.integers(), st.text(), st.dictionaries(st.text(), st.text()))
)
def test_any_template_makes_a_key_or_a_problem(template, value):
    try:
        key = render(template, value)
    except InvalidKey:
        return
    assert 0 < len(key) <= LONGEST_KEY
