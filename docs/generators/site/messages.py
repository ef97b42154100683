"""The reference of events and requests on NATS, from the AsyncAPI document."""

import json
from pathlib import Path
from typing import Any

_FOLDER = Path("proto-schemas")


def text(root: Path) -> str:
    """Describe each subject with the messages that it carries."""
    document = json.loads((root / _FOLDER / "asyncapi.json").read_text("utf-8"))
    messages = document["components"]["messages"]
    return "\n\n".join(
        _channel(channel, messages, root / _FOLDER) for channel in document["channels"].values()
    )


def _channel(channel: dict[str, Any], messages: dict[str, Any], folder: Path) -> str:
    parts = [f"## `{channel['address']}`", channel.get("description", "")]
    if stream := channel.get("x-jetstream", {}).get("stream"):
        parts.append(f"Stored in the stream `{stream}`.")
    rows = [_row(name, messages[name], folder) for name in channel["messages"] if name in messages]
    parts.append("\n".join(["| message | meaning | fields |", "|---|---|---|", *rows]))
    return "\n\n".join(part for part in parts if part)


def _row(name: str, message: dict[str, Any], folder: Path) -> str:
    payload = message.get("payload", {}).get("schema", {}).get("$ref", "")
    path = folder / payload
    fields = ""
    if payload.endswith(".json") and path.is_file():
        fields = ", ".join(f"`{field}`" for field in _fields(json.loads(path.read_text("utf-8"))))
    summary = str(message.get("summary", "")).replace("|", "\\|").replace("\n", " ")
    return f"| `{name}` | {summary} | {fields} |"


def _fields(schema: dict[str, Any]) -> list[str]:
    """Return the fields of a message, or of an event's data."""
    properties = _resolved(schema, schema).get("properties", {})
    data = properties.get("data")
    found = _resolved(schema, data).get("properties", {}) if data else properties
    return list(found)


def _resolved(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    reference = schema.get("$ref", "")
    if not reference.startswith("#/$defs/"):
        return schema
    found: dict[str, Any] = document["$defs"][reference.removeprefix("#/$defs/")]
    return found
