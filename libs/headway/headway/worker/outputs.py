"""What a body returned, as it can be sent."""

from typing import Any

import msgspec
from headway_contract.lifecycle import Failure
from headway_contract.limits import MESSAGE_LIMIT, OUTPUT_LIMIT, OUTPUT_TOO_LARGE

from headway.jobs import holds_nul


def encode_output(output: Any, most: int = OUTPUT_LIMIT) -> msgspec.Raw | Failure:
    """An output as JSON of at most so many bytes, or why it cannot be kept.

    To run again would not change that. What is encoded already is only measured.
    """
    try:
        encoded = msgspec.json.encode(output)
        if not isinstance(output, msgspec.Raw) and holds_nul(encoded):
            raise ValueError("the output holds a NUL character, which cannot be stored")
    except (TypeError, ValueError, RecursionError) as error:
        return Failure(kind="output_not_json", message=str(error)[:MESSAGE_LIMIT], retryable=False)
    if len(encoded) > most:
        message = (
            f"the output has {len(encoded)} bytes, more than {most}: "
            "store it elsewhere and return where it is found"
        )
        return Failure(kind=OUTPUT_TOO_LARGE, message=message, retryable=False)
    return msgspec.Raw(encoded)
