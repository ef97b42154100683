"""Checks of inputs against the JSON Schema that their job declares.

Declarations, triggers and activations use them. External references of a schema are not fetched.
"""

import hashlib
from functools import lru_cache
from typing import Any

import jsonschema_rs
import msgspec

# A pattern with catastrophic backtracking fails to match instead of taking minutes.
_PATTERNS = jsonschema_rs.FancyRegexOptions(backtrack_limit=100_000)
_LONGEST = 300


def problem_of_input(schema: dict[str, Any] | None, takes_input: bool, value: Any) -> str | None:
    """Return the first reason why a job does not accept an input, or `None`."""
    if not takes_input:
        return None if value is None else "the job takes no input"
    if schema is None:
        return None
    try:
        validator = _validator(msgspec.json.encode(schema, order="sorted"))
        errors = validator.iter_errors(value)
        first = next(errors, None)
        more = sum(1 for _ in errors)
    except ValueError as error:
        return _describe(error)
    if first is None:
        return None
    return f"{_describe(first)}{f' (and {more} more)' if more else ''}"


def problems_of_input(
    schema: dict[str, Any] | None, takes_input: bool, value: Any
) -> list[tuple[list[str], str]]:
    """Return all problems of an input, each with the path to the value."""
    if not takes_input or schema is None:
        problem = problem_of_input(schema, takes_input, value)
        return [] if problem is None else [([], problem)]
    try:
        errors = _validator(msgspec.json.encode(schema, order="sorted")).iter_errors(value)
        return [
            ([str(step) for step in error.instance_path], _shorten(_first_line(error)))
            for error in errors
        ]
    except ValueError as error:
        return [([], _describe(error))]


def schema_id(schema: dict[str, Any] | None) -> str | None:
    """Return the id of a JSON Schema, equal for equal schemas; `None` without a schema."""
    return None if schema is None else _schema_id(msgspec.json.encode(schema, order="sorted"))


@lru_cache(maxsize=1024)
def _schema_id(encoded: bytes) -> str:
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
    """Describe an error and its place in one line."""
    path = error.instance_path if isinstance(error, jsonschema_rs.ValidationError) else []
    place = ".".join(str(step) for step in path)
    return _shorten(f"{f'at {place}: ' if place else ''}{_first_line(error)}")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
