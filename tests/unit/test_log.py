"""Log entries: a phrase and fields, as text and as JSON."""

import io
import json
import logging

import pytest
from headway_tracing.log import TEXT_FORMAT, JsonFormatter, get_logger


@pytest.fixture
def written():
    """Read what a formatter makes of entries."""
    logger = logging.getLogger("test_log")
    logger.setLevel(logging.DEBUG)
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logger.addHandler(handler)

    def read(formatter: logging.Formatter) -> io.StringIO:
        handler.setFormatter(formatter)
        return stream

    yield read
    logger.removeHandler(handler)


def test_text_is_one_line_whatever_the_values_contain(written):
    stream = written(logging.Formatter(TEXT_FORMAT))
    get_logger("test_log").warning("order republished", lease="a b", error='say "no"\r\nfake line')
    [line] = stream.getvalue().splitlines()
    assert line.endswith('order republished lease="a b" error="say \\"no\\"\\r\\nfake line"')


def test_json_keeps_the_phrase_apart_from_the_fields(written):
    stream = written(JsonFormatter())
    get_logger("test_log").info("run claimed", lease="l1", level="low")
    entry = json.loads(stream.getvalue())
    assert entry["event"] == "run claimed"
    assert (entry["lease"], entry["level"], entry["level_"]) == ("l1", "info", "low")


def test_exceptions_are_kept(written):
    stream = written(JsonFormatter())
    try:
        raise ValueError("broken")
    except ValueError:
        get_logger("test_log").exception("pass failed")
    entry = json.loads(stream.getvalue())
    assert "ValueError: broken" in entry["exception"]


def test_records_of_other_libraries_become_json_too(written):
    stream = written(JsonFormatter())
    logging.getLogger("test_log").error("failed after %d s", 3)
    assert json.loads(stream.getvalue())["event"] == "failed after 3 s"
