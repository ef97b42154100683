"""The OpenAPI document, made of the same entries as the API itself.

python -m headway_console.api.openapi proto-schemas/openapi.json            write it
python -m headway_console.api.openapi proto-schemas/openapi.json --check    fail if it has drifted
"""

import functools
import inspect
import sys
from pathlib import Path
from typing import Any

import msgspec
from headway_contract.http import shape_of
from headway_contract.routes import API, Route
from litestar import Request, Response, get
from msgspec import Struct, structs

from headway_console import api
from headway_console.access.guards import needs
from headway_console.api.endpoints import Endpoint
from headway_console.problems import MEDIA_TYPE, Problem

_REFS = "#/components/schemas/{name}"
_ERRORS = {
    "400": "It cannot be read.",
    "401": "Nobody knows who asks.",
    "403": "The role is not enough.",
    "404": "There is no such thing.",
    "409": "The service refuses it as things are, and says why.",
    "413": "It is too large.",
    "422": "It does not fit.",
    "502": "The service has failed; its log says why.",
    "503": "No service has answered, and what to do about it.",
    "504": "No service has answered in time; it may have been done all the same.",
}
_RETRY_AFTER = {
    "Retry-After": {
        "description": "After how many seconds to try again.",
        "schema": {"type": "integer", "minimum": 0},
    }
}
_AGAIN = ("503", "504")


@get(f"{API}/openapi.json", opt=needs("viewer"), sync_to_thread=False)
def document_handler(request: Request[Any, Any, Any]) -> Response[bytes]:  # noqa: ARG001
    """The document."""
    return Response(formatted(), media_type="application/json")


@functools.cache
def formatted() -> bytes:
    """The document as a file."""
    return msgspec.json.format(msgspec.json.encode(document()), indent=2) + b"\n"


def document() -> dict[str, Any]:
    """OpenAPI 3.1."""
    kinds = list(dict.fromkeys(kind for one in api.ENDPOINTS for kind in _kinds(one.route)))
    found, components = msgspec.json.schema_components([*kinds, Problem], ref_template=_REFS)
    schemas = dict(zip([*kinds, Problem], found, strict=True))
    paths: dict[str, Any] = {}
    for endpoint in api.ENDPOINTS:
        route = endpoint.route
        paths.setdefault(API + route.path, {})[route.method.lower()] = _operation(endpoint, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headway",
            "version": "1",
            "description": "Everything that a person can do. Errors are problems (RFC 9457).",
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted(_tidy(components).items())),
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token of HEADWAY_API_TOKENS_FILE, or a JWT of the issuer.",
                }
            },
        },
    }


def _kinds(route: Route) -> list[type[Struct]]:
    shape = shape_of(route)
    return [shape.path, shape.query, *([shape.body] if shape.body else []), route.answer]


def _operation(endpoint: Endpoint, schemas: dict[Any, Any]) -> dict[str, Any]:
    route, shape = endpoint.route, shape_of(endpoint.route)
    made: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "description": f"Needs the role {route.role}.",
        "tags": [route.tag],
        "x-headway-role": route.role,
        "parameters": [*_parameters("path", shape.path), *_parameters("query", shape.query)],
        "responses": {"200": _answer(endpoint, schemas), **_problems(schemas)},
    }
    if route.key:
        made["parameters"].append(_IDEMPOTENCY_KEY)
    if shape.body is not None and shape.body.__struct_fields__:
        made["requestBody"] = _body(shape.body, schemas[shape.body])
    return made


def _parameters(where: str, kind: type[Struct]) -> list[dict[str, Any]]:
    [found], _ = msgspec.json.schema_components([kind])
    _, components = msgspec.json.schema_components([kind])
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
    """A parameter is there or not; it is never null."""
    options = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    if not options:
        return schema
    return options[0] if len(options) == 1 else {"anyOf": options}


def _answer(endpoint: Endpoint, schemas: dict[Any, Any]) -> dict[str, Any]:
    route = endpoint.route
    if endpoint.streams:
        content: dict[str, Any] = {"text/event-stream": {"schema": {"type": "string"}}}
    else:
        content = {"application/json": {"schema": schemas[route.answer]}}
    text = inspect.cleandoc(route.answer.__doc__ or "").partition("\n")[0]
    return {"description": text, "content": content}


def _body(kind: type[Struct], schema: Any) -> dict[str, Any]:
    content = {"application/json": {"schema": schema}}
    required = any(one.required for one in structs.fields(kind))
    return {"required": required, "content": content}


def _problems(schemas: dict[Any, Any]) -> dict[str, Any]:
    content = {MEDIA_TYPE: {"schema": schemas[Problem]}}
    return {
        code: {
            "description": text,
            "content": content,
            **({"headers": _RETRY_AFTER} if code in _AGAIN else {}),
        }
        for code, text in _ERRORS.items()
    }


_IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same key does it only once; with other parameters it is refused.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]*$"},
}


def _tidy(schema: Any) -> Any:
    """Docstrings without their indentation, which newer Pythons drop by themselves."""
    if isinstance(schema, dict):
        return {
            key: inspect.cleandoc(value)
            if key == "description" and isinstance(value, str)
            else _tidy(value)
            for key, value in schema.items()
        }
    return [_tidy(one) for one in schema] if isinstance(schema, list) else schema


def main(arguments: list[str]) -> int:
    """Write or check."""
    path = Path(arguments[0])
    if "--check" not in arguments:
        path.write_bytes(formatted())
        return 0
    if path.is_file() and path.read_bytes() == formatted():
        return 0
    sys.stderr.write(f"{path} has drifted: run './justw generate' and commit the result\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
