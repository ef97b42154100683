"""Beginnings of ids in a request, each of which stands for the only id that begins so."""

from collections.abc import Mapping
from typing import Any

import msgspec
from headway_contract.fields import begins_id

from headway_console.api.request_fields import Given, Shape
from headway_console.reading.ids import Kind, find_id
from headway_console.services import HttpRequest, read

# The kinds of things that a field names.
_KINDS: Mapping[str, tuple[Kind, ...]] = {
    "run": ("run",),
    "work": ("work",),
    "id": ("work", "run"),
    "ids": ("work", "run"),
    "dead_letters": ("dead letter",),
    "canary": ("canary",),
    "pauses": ("pause",),
}
_OF_LETTERS: Mapping[str, tuple[Kind, ...]] = {**_KINDS, "id": ("dead letter", "work")}


async def complete_ids(request: HttpRequest, shape: Shape, path: str, given: Given) -> Given:
    """Replace beginnings of ids; raises `NotFound` or `Invalid` unless exactly one id fits."""
    kinds = _OF_LETTERS if path.startswith("/dead-letters/") else _KINDS

    async def complete(name: str, value: Any) -> Any:
        if isinstance(value, list):
            return [await complete(name, item) for item in value]
        if name not in shape.ids & kinds.keys() or not isinstance(value, str):
            return value
        return str(await read(request, find_id, value, kinds[name])) if begins_id(value) else value

    body = given.body
    try:
        sent = msgspec.json.decode(body or b"{}", type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, RecursionError):
        sent = {}  # `read_fields` reports it
    for name in shape.ids & sent.keys():
        value = msgspec.json.decode(sent[name])
        sent[name] = msgspec.Raw(msgspec.json.encode(await complete(name, value)))
        body = msgspec.json.encode(sent)
    return Given(
        path={name: await complete(name, value) for name, value in given.path.items()},
        query=[(name, await complete(name, value)) for name, value in given.query],
        body=body,
    )
