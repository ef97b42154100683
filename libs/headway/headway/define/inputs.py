"""Check inputs against the JSON Schema of their job; external references are not fetched."""

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
        found = _validator(msgspec.json.encode(schema, order="sorted")).iter_errors(value)
        errors = [cause for error in found for cause in _causes(error)]
    except ValueError as error:
        return _describe(error)
    if not errors:
        return None
    more = f" (and {len(errors) - 1} more)" if errors[1:] else ""
    return f"{_describe(errors[0])}{more}"


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


def _causes(error: Any) -> list[Any]:
    """Return the errors of the only alternative beside null of an optional value."""
    alternatives = [
        errors
        for errors in getattr(error.kind, "context", ())
        if not any(each.message.endswith('is not of type "null"') for each in errors)
    ]
    if len(alternatives) != 1:
        return [error]
    return [cause for each in alternatives[0] for cause in _causes(each)]


def _describe(error: Exception) -> str:
    """Describe a misfit, or why a schema is not usable; an error of the library has its place."""
    place = ".".join(map(str, getattr(error, "instance_path", ())))
    problem = _shorten(str(error).partition("\n")[0])
    return _shorten(f"at {place}: {problem}" if place else problem)


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
