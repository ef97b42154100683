"""The reference of the HTTP routes, from the OpenAPI document."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

DOCUMENT = Path("services/console/headway_console/api/openapi.json")
_METHODS = ("get", "post", "put", "patch", "delete")


def text(root: Path) -> str:
    """Describe each route with its role, parameters, body and answer."""
    document = json.loads((root / DOCUMENT).read_text("utf-8"))
    groups: dict[str, list[str]] = defaultdict(list)
    for path, item in document["paths"].items():
        for method in _METHODS:
            if operation := item.get(method):
                groups[operation["tags"][0]].append(_route(method, path, operation))
    return "\n\n".join(part for tag, routes in groups.items() for part in (f"## {tag}", *routes))


def _route(method: str, path: str, operation: dict[str, Any]) -> str:
    parts = [f"### `{method.upper()} {path}`", operation["summary"]]
    role = operation.get("x-headway-role")
    facts = [f"Role `{role}`."] if role else []
    if body := _schema(operation.get("requestBody")):
        facts.append(f"Body: {body}.")
    success = next((found for code, found in operation["responses"].items() if code < "300"), None)
    if answer := _schema(success):
        facts.append(f"Answer: {answer}.")
    if facts:
        parts.append(" ".join(facts))
    if parameters := operation.get("parameters"):
        rows = [_row(parameter) for parameter in parameters]
        parts.append("\n".join(["| parameter | in | type | meaning |", "|---|---|---|---|", *rows]))
    return "\n\n".join(parts)


def _schema(content: dict[str, Any] | None) -> str:
    """Return the name of a body's schema."""
    for media, found in (content or {}).get("content", {}).items():
        reference = found.get("schema", {}).get("$ref", "")
        return f"`{reference.rpartition('/')[2]}`" if reference else f"`{media}`"
    return ""


def _row(parameter: dict[str, Any]) -> str:
    schema = parameter.get("schema", {})
    kinds = schema.get("enum") or [part.get("type", "") for part in schema.get("anyOf", [schema])]
    shown = ", ".join(f"`{kind}`" for kind in kinds if kind)
    required = " (required)" if parameter.get("required") else ""
    meaning = str(parameter.get("description", "")).replace("|", "\\|").replace("\n", " ")
    return f"| `{parameter['name']}`{required} | {parameter['in']} | {shown} | {meaning} |"
