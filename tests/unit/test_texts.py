"""Replacement of text from workers that PostgreSQL cannot store."""

import json

import msgspec
import pytest
from headway_decisions.runs.report_limits import storable_json
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (rb'"a\u0000b"', "a\\0b"),
        (rb'"\u0000\u0000"', "\\0\\0"),
        (rb'"\\u0000"', "\\u0000"),
        (rb'"\\\u0000"', "\\\\0"),
        (rb'"\ud800"', "\ufffd"),
        (rb'"\uDC00x"', "\ufffdx"),
        (rb'"\udc00\ud800"', "\ufffd\ufffd"),
        (rb'"\ud800\ud83d\ude00"', "\ufffd\U0001f600"),
        (rb'"\ud83d\ude00\ude00"', "\U0001f600\ufffd"),
        (rb'"\\ud800"', "\\ud800"),
        (b'"\xff"', "\ufffd"),
        (b'"caf\xe9"', "caf\ufffd"),
        ('"\U0001f600"'.encode(), "\U0001f600"),
    ],
)
def test_characters_that_cannot_be_stored_are_replaced(body, text):
    assert msgspec.json.decode(storable_json(body)) == text


def test_in_keys_too():
    assert msgspec.json.decode(storable_json(rb'{"a\u0000":{"\ud800":1}}')) == {
        "a\\0": {"\ufffd": 1}
    }


@pytest.mark.parametrize("body", [b"", b"rubbish", b"\\", b'"\\u00', b"[" * 9])
def test_invalid_json_is_unchanged(body):
    assert storable_json(body) == body


@given(st.text(alphabet=st.sampled_from('a\x00\ud800\udc00"\\u0d\U0001f600')))
def test_any_text_becomes_storable_and_storable_text_stays(text):
    body = json.dumps(text).encode()
    decoded = msgspec.json.decode(storable_json(body))
    decoded.encode()
    assert "\x00" not in decoded
    if "\x00" not in text and not any("\ud800" <= character <= "\udfff" for character in text):
        assert storable_json(body) == body
