"""Check inputs against the JSON Schema of their job; external references are not fetched."""

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import jsonschema_rs
import msgspec

# A pattern with catastrophic backtracking fails to match instead of taking minutes.
_PATTERNS = jsonschema_rs.FancyRegexOptions(backtrack_limit=100_000)
_LONGEST = 300


def problem_of_input(schema: dict[str, Any] | None, takes_input: bool, value: Any) -> str | None:
    """Return the first reason why a job does not accept an input, or `None`."""
    problems = problems_of_input(schema, takes_input, value)
    if not problems:
        return None
    more = f" (and {len(problems) - 1} more)" if problems[1:] else ""
    return f"{_with_place(*problems[0])}{more}"


def problems_of_input(
    schema: dict[str, Any] | None, takes_input: bool, value: Any
) -> list[tuple[list[str], str]]:
    """Return all problems of an input, each with the path to the value."""
    if not takes_input:
        return [] if value is None else [([], "the job takes no input")]
    if schema is None:
        return []
    try:
        errors = _validator(msgspec.json.encode(schema, order="sorted")).iter_errors(value)
        return [([str(step) for step in error.instance_path], _text(error)) for error in errors]
    except ValueError as error:
        return [([], _describe(error))]


def schema_id(schema: dict[str, Any] | None) -> str | None:
    """Return the id of a JSON Schema, equal for equal schemas; `None` without a schema."""
    if schema is None:
        return None
    encoded = msgspec.json.encode(schema, order="sorted")
    return f"sha256:{hashlib.sha256(encoded).hexdigest()[:16]}"


def problem_of_schema(schema: Any) -> str | None:
    """Return why a value is not a usable JSON Schema, or `None`."""
    if schema is None:
        return None
    if not isinstance(schema, dict):
        return "a JSON Schema is a mapping, such as {type: object}"
    try:
        _validator(msgspec.json.encode(schema, order="sorted"))
    except (ValueError, TypeError) as error:
        return _describe(error)
    return None


@lru_cache(maxsize=1024)
def _validator(schema: bytes) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(
        msgspec.json.decode(schema), offline=True, pattern_options=_PATTERNS
    )


def _describe(error: Exception) -> str:
    """Describe why a schema is not usable; the error of a library has the place."""
    return _with_place(getattr(error, "instance_path", ()), _text(error))


def _with_place(path: Iterable[str | int], problem: str) -> str:
    place = ".".join(map(str, path))
    return _shorten(f"at {place}: {problem}" if place else problem)


def _text(error: Exception) -> str:
    return _shorten(str(error).partition("\n")[0])


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
