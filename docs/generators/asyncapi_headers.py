"""Headers of messages and refusals of services, for the AsyncAPI document."""

from collections.abc import Iterable
from typing import Any

from headway_contract import subjects
from headway_errors import NATS_CODE, ErrorKind

Json = dict[str, Any]

_ABOUT = {
    subjects.MESSAGE_ID_HEADER: "Lets the broker drop a message that is published again.",
    subjects.TRACEPARENT_HEADER: "W3C trace context.",
    subjects.EXPECTED_SEQUENCE_HEADER: "The sequence of the publisher's previous message of the "
    "lease, 0 for a claim.",
    subjects.EXPECTED_SUBJECT_HEADER: "The scope of the fence: every event of the lease, "
    "from any publisher.",
}
REFUSAL = "refusal"
_REFUSALS = {NATS_CODE[kind]: kind.value.replace("_", " ") for kind in ErrorKind}
TRAITS = {
    "relayed": (subjects.MESSAGE_ID_HEADER,),
    "fenced": (subjects.EXPECTED_SEQUENCE_HEADER, subjects.EXPECTED_SUBJECT_HEADER),
}


def refusal() -> Json:
    """Describe the answer of a service that refuses a request."""
    kinds = ", ".join(f"{code}: {what}" for code, what in _REFUSALS.items())
    return {
        "name": REFUSAL,
        "summary": "The service refused the request; the body has the reasons, a header the first.",
        "contentType": "text/plain",
        "headers": {
            "type": "object",
            "required": [subjects.ERROR_HEADER, subjects.ERROR_CODE_HEADER],
            "properties": {
                subjects.ERROR_HEADER: {
                    "type": "string",
                    "description": "The first line of the reasons.",
                },
                subjects.ERROR_CODE_HEADER: {
                    "type": "string",
                    "enum": list(_REFUSALS),
                    "description": f"The kind of the refusal. {kinds}.",
                },
            },
        },
        "payload": {"type": "string"},
    }


def trait(required: Iterable[str]) -> Json:
    """Describe the headers of one kind of message; some are required."""
    named = [*required, subjects.TRACEPARENT_HEADER]
    return {
        "headers": {
            "type": "object",
            "required": list(required),
            "properties": {name: {"type": "string", "description": _ABOUT[name]} for name in named},
        }
    }
