"""Concurrency keys, rendered from a template such as `customer:{input.id}`."""

import re
from functools import lru_cache
from string import Formatter
from typing import Any

LONGEST_KEY = 255

_FIELD = re.compile(r"^(?:manifest|group|job|input(?:\.[A-Za-z0-9_-]+)*)$")
# A NUL and halves of surrogate pairs: PostgreSQL stores neither.
_NOT_STORABLE = re.compile("[\x00\ud800-\udfff]")
_REMEDY = (
    "write fields as {input.id}, {input}, {manifest}, {group} or {job}, and braces of your own as "
    "{{ and }}"
)


class InvalidKey(ValueError):
    """A template is not valid, or gives no key for an input."""


@lru_cache(maxsize=1024)
def check_template(template: str) -> tuple[tuple[str, str | None], ...]:
    """Split a template into texts and the path of the field after each, or raise `InvalidKey`."""
    try:
        parsed = list(Formatter().parse(template))
    except ValueError as error:
        raise InvalidKey(f"concurrency_key {template!r}: {error}; {_REMEDY}") from None
    if not parsed:
        raise InvalidKey(f"concurrency_key {template!r} is empty: {_REMEDY}")
    for _, path, form, conversion in parsed:
        if path is not None and (form or conversion or not _FIELD.match(path)):
            raise InvalidKey(f"concurrency_key {template!r}: {path!r} is no field; {_REMEDY}")
    return tuple((text, path) for text, path, _, _ in parsed)


def render_key(
    template: str,
    *,
    input: Any,  # noqa: A002
    manifest: str | None,
    group: str,
    job: str,
) -> str:
    """Render the key of one piece of work, or raise `InvalidKey`."""
    fields = {"input": input, "manifest": manifest, "group": group, "job": job}
    parts = check_template(template)
    key = "".join(text + ("" if path is None else _value(fields, path)) for text, path in parts)
    if not key or len(key) > LONGEST_KEY or _NOT_STORABLE.search(key):
        raise InvalidKey(
            f"concurrency_key {template!r} gives {key[:40]!r}: a key has from 1 to {LONGEST_KEY} "
            "characters, no NUL and no half of a surrogate pair"
        )
    return key


def _value(fields: dict[str, Any], path: str) -> str:
    name, *steps = path.split(".")
    value = fields[name]
    for step in steps:
        value = value.get(step) if isinstance(value, dict) else None
    if isinstance(value, bool) or not isinstance(value, str | int):
        found = "missing" if value is None else f"of type {type(value).__name__}"
        raise InvalidKey(
            f"concurrency_key: {{{path}}} is {found}: a key is made of text and whole numbers"
        )
    return str(value)
