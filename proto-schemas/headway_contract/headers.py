"""The headers of messages, as the AsyncAPI document tells of them, and how services refuse."""

from collections.abc import Iterable
from typing import Any

from headway_errors import NATS_CODE, ErrorKind

from headway_contract import subjects

Json = dict[str, Any]

_ABOUT = {
    subjects.MESSAGE_ID_HEADER: "Lets the broker drop a message that is published again.",
    subjects.TRACEPARENT_HEADER: "W3C trace context.",
    subjects.EXPECTED_SEQUENCE_HEADER: "The sequence of the publisher's previous message of the "
    "lease, 0 for a claim.",
    subjects.EXPECTED_SUBJECT_HEADER: "The scope of the fence: every event of the lease, whoever "
    "published it.",
}
REFUSAL = "refusal"
_REFUSALS = {NATS_CODE[kind]: kind.value.replace("_", " ") for kind in ErrorKind}
TRAITS = {
    "relayed": (subjects.MESSAGE_ID_HEADER,),
    "fenced": (subjects.EXPECTED_SEQUENCE_HEADER, subjects.EXPECTED_SUBJECT_HEADER),
}


def refusal() -> Json:
    """What a service answers that does not do what it is asked for."""
    kinds = ", ".join(f"{code}: {what}" for code, what in _REFUSALS.items())
    return {
        "name": REFUSAL,
        "summary": "Why not. All of it is in the body, and the first line in a header.",
        "contentType": "text/plain",
        "headers": {
            "type": "object",
            "required": [subjects.ERROR_HEADER, subjects.ERROR_CODE_HEADER],
            "properties": {
                subjects.ERROR_HEADER: {"type": "string", "description": "Why, on one line."},
                subjects.ERROR_CODE_HEADER: {
                    "type": "string",
                    "enum": list(_REFUSALS),
                    "description": f"Of which kind it is. {kinds}.",
                },
            },
        },
        "payload": {"type": "string"},
    }


def trait(required: Iterable[str]) -> Json:
    """The headers of one kind of message, of which some are never left out."""
    named = [*required, subjects.TRACEPARENT_HEADER]
    return {
        "headers": {
            "type": "object",
            "required": list(required),
            "properties": {name: {"type": "string", "description": _ABOUT[name]} for name in named},
        }
    }
