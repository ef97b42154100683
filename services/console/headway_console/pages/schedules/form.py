"""A form from a job's JSON Schema (or one JSON text), and the input from a filled form."""

import json
from collections.abc import Mapping
from typing import Any

from headway.define.inputs import problems_of_input
from msgspec import Struct, structs

from headway_console.pages.filters import pretty

WHOLE = "input"
_PREFIX = "field-"
_KINDS = {"string": "text", "integer": "number", "number": "number", "boolean": "checkbox"}
_MAX_FIELDS = 40


class Field(Struct, frozen=True, kw_only=True):
    """One field: `kind` is that of an input element, or `choice` or `json`."""

    name: str
    key: str
    label: str
    kind: str
    value: str
    required: bool = False
    checked: bool = False
    choices: tuple[str, ...] = ()
    hint: str = ""
    step: str = ""
    problem: str = ""


class Form(Struct, frozen=True, kw_only=True):
    """The form; `problem` is about the whole input."""

    fields: list[Field]
    problem: str = ""


def make_form(schema: dict[str, Any] | None, value: Any, *, takes_input: bool) -> Form:
    """Make the form of a schema, filled with a value."""
    if not takes_input:
        return Form(fields=[])
    properties = _plain(schema)
    if properties is None or not (value is None or isinstance(value, dict)):
        text = "" if value is None else pretty(value)
        whole = Field(name=WHOLE, key=WHOLE, label="Input (JSON)", kind="json", value=text)
        return Form(fields=[whole])
    required = set(_target(schema).get("required", ()))
    known = value or {}
    return Form(
        fields=[
            _field(key, schema, known.get(key, schema.get("default")), required=key in required)
            for key, schema in properties.items()
        ]
    )


def read_form(form: Form, given: Mapping[str, Any]) -> tuple[Any, Form]:
    """Return the input, and the filled form with its problems."""
    value: dict[str, Any] = {}
    fields = []
    for field in form.fields:
        text = str(given.get(field.name, "")).strip()
        problem = ""
        try:
            if field.kind == "checkbox":
                value[field.key] = field.name in given
            elif text or (field.required and field.kind == "text"):
                value[field.key] = _value(field, text)
        except ValueError as error:
            problem = str(error)
        checked = field.name in given
        fields.append(structs.replace(field, value=text, checked=checked, problem=problem))
    filled = Form(fields=fields)
    if [field.name for field in form.fields] == [WHOLE]:
        return value.get(WHOLE), filled
    return (value if form.fields else None), filled


def check_form(form: Form, schema: dict[str, Any] | None, value: Any, *, takes_input: bool) -> Form:
    """Return the form with schema violations beside their fields."""
    if any(field.problem for field in form.fields):
        return form
    found = problems_of_input(schema, takes_input, value)
    at = {path[0]: text for path, text in reversed(found) if path}
    keys = {field.key for field in form.fields}
    whole = [text for path, text in found if not path or path[0] not in keys]
    fields = [structs.replace(field, problem=at.get(field.key, "")) for field in form.fields]
    return Form(fields=fields, problem="; ".join(whole))


def is_sound(form: Form) -> bool:
    """Tell whether the form has no problems."""
    return not form.problem and not any(field.problem for field in form.fields)


def _target(schema: dict[str, Any] | None) -> dict[str, Any]:
    """Resolve a local reference at the top of a schema."""
    found = schema or {}
    reference = found.get("$ref", "")
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        target = found.get("$defs", {}).get(reference.removeprefix("#/$defs/"), {})
        return target if isinstance(target, dict) else {}
    return found


def _plain(schema: dict[str, Any] | None) -> dict[str, dict[str, Any]] | None:
    """Return the properties of an object of plain fields, or `None`."""
    target = _target(schema)
    properties = target.get("properties")
    if not isinstance(properties, dict) or len(properties) > _MAX_FIELDS:
        return None
    is_plain = all(isinstance(field, dict) and _kind(field) for field in properties.values())
    return properties if is_plain else None


def _kind(schema: dict[str, Any]) -> str | None:
    choices = schema.get("enum")
    if isinstance(choices, list) and all(isinstance(choice, str) for choice in choices):
        return "choice"
    kind = schema.get("type")
    return _KINDS.get(kind) if isinstance(kind, str) else None


def _field(key: str, schema: dict[str, Any], value: Any, *, required: bool) -> Field:
    kind = _kind(schema) or "text"
    return Field(
        name=f"{_PREFIX}{key}",
        key=key,
        label=str(schema.get("title") or key),
        kind=kind,
        required=required,
        value="" if value is None or isinstance(value, bool) else str(value),
        checked=value is True,
        choices=tuple(schema.get("enum", ())) if kind == "choice" else (),
        hint=str(schema.get("description", "")),
        step="1" if schema.get("type") == "integer" else "any",
    )


def _value(field: Field, text: str) -> Any:
    if field.kind == "json":
        try:
            return json.loads(text)
        except ValueError as error:
            raise ValueError(f"invalid JSON: {error}") from error
    if field.kind == "number":
        try:
            return int(text) if field.step == "1" else float(text)
        except ValueError:
            wanted = "a whole number" if field.step == "1" else "a number"
            raise ValueError(f"{text!r} is not {wanted}") from None
    return text
