"""The OpenAPI document, made of the endpoints of the console, which serves it."""

from pathlib import Path
from typing import Any

import msgspec
from headway_console.api import ENDPOINTS
from headway_console.api.endpoints import IDEMPOTENCY_KEY, Endpoint, first_line
from headway_console.problems import MEDIA_TYPE, Problem
from headway_contract.http import API
from msgspec import Struct, structs

from generators.json_text import clean, formatted

_REFS = "#/components/schemas/{name}"
_ERRORS = {
    "400": "The request is unreadable.",
    "401": "The request is not authenticated.",
    "403": "The role does not suffice.",
    "404": "Not found.",
    "409": "Not possible in the current state.",
    "413": "The request is too large.",
    "422": "The request is invalid.",
    "502": "The service failed; see its log.",
    "503": "No service answers.",
    "504": "No service answered in time; the request may have been carried out.",
}
_RETRY_AFTER = {
    "Retry-After": {
        "description": "Seconds to wait before the next try.",
        "schema": {"type": "integer", "minimum": 0},
    }
}
_IDEMPOTENCY_KEY = {
    "name": IDEMPOTENCY_KEY,
    "in": "header",
    "required": False,
    "description": "Carried out once for each key; refused with other parameters.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]*$"},
}


def files(_root: Path) -> dict[Path, str]:
    """Make the file that the console serves."""
    return {Path("services/console/headway_console/api/openapi.json"): formatted(document())}


def document() -> dict[str, Any]:
    """Return the document (OpenAPI 3.1)."""
    bodies = [endpoint.shape.body for endpoint in ENDPOINTS if endpoint.shape.body]
    answers = [endpoint.answer for endpoint in ENDPOINTS]
    kinds: list[Any] = list(dict.fromkeys([*bodies, *answers, Problem]))
    found, components = msgspec.json.schema_components(kinds, ref_template=_REFS)
    schemas = dict(zip(kinds, found, strict=True))
    paths: dict[str, Any] = {}
    for endpoint in ENDPOINTS:
        operations = paths.setdefault(API + endpoint.path, {})
        operations[endpoint.method.lower()] = _operation(endpoint, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headway",
            "version": "1",
            "description": "Errors are problem details (RFC 9457).",
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted(clean(components).items())),
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token of HEADWAY_API_TOKENS_FILE, or a JWT of the issuer.",
                }
            },
        },
    }


def _operation(endpoint: Endpoint, schemas: dict[Any, Any]) -> dict[str, Any]:
    shape = endpoint.shape
    made: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "description": f"Needs the role {endpoint.role}.",
        "tags": [endpoint.tag],
        "x-headway-role": endpoint.role,
        "parameters": [*_parameters("path", shape.path), *_parameters("query", shape.query)],
        "responses": {"200": _answer(endpoint, schemas)},
    }
    for code, text in _ERRORS.items():
        problem: dict[str, Any] = {"description": text}
        problem["content"] = {MEDIA_TYPE: {"schema": schemas[Problem]}}
        if code in ("503", "504"):
            problem["headers"] = _RETRY_AFTER
        made["responses"][code] = problem
    if endpoint.takes_key:
        made["parameters"].append(_IDEMPOTENCY_KEY)
    if shape.body is not None and shape.body.__struct_fields__:
        made["requestBody"] = {
            "required": any(field.required for field in structs.fields(shape.body)),
            "content": {"application/json": {"schema": schemas[shape.body]}},
        }
    return made


def _parameters(where: str, kind: type[Struct]) -> list[dict[str, Any]]:
    [found], components = msgspec.json.schema_components([kind])
    properties = components[found["$ref"].rpartition("/")[2]]["properties"]
    return [
        {
            "name": field.encode_name,
            "in": where,
            "required": field.required,
            "schema": _without_null(properties[field.encode_name]),
        }
        for field in structs.fields(kind)
    ]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Remove null, which a parameter cannot have."""
    options = [option for option in schema.get("anyOf", ()) if option != {"type": "null"}]
    if not options:
        return schema
    default = {"default": schema["default"]} if schema.get("default") is not None else {}
    return {**(options[0] if len(options) == 1 else {"anyOf": options}), **default}


def _answer(endpoint: Endpoint, schemas: dict[Any, Any]) -> dict[str, Any]:
    if endpoint.streams:
        content: dict[str, Any] = {"text/event-stream": {"schema": {"type": "string"}}}
    else:
        content = {"application/json": {"schema": schemas[endpoint.answer]}}
    return {"description": first_line(endpoint.answer), "content": content}
