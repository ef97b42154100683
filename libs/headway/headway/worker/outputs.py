"""What a body returned, as it can be sent."""

from typing import Any

import msgspec
from headway_contract.lifecycle import Failure
from headway_contract.limits import OUTPUT_LIMIT, OUTPUT_TOO_LARGE

from headway.define.jobs import holds_nul
from headway.worker.failures import failure_of


def encode_output(output: Any, most: int = OUTPUT_LIMIT) -> msgspec.Raw | Failure:
    """An output as JSON of at most so many bytes, or why it cannot be kept.

    To run again would not change that.
    """
    try:
        encoded = msgspec.json.encode(output)
        if isinstance(output, msgspec.Raw):
            msgspec.json.decode(encoded, type=msgspec.Raw)  # or nobody could read the event
        if holds_nul(encoded):
            raise ValueError("the output holds a NUL character, which cannot be stored")
    except Exception as error:  # noqa: BLE001 - an output may have code of its own
        return Failure(
            kind="output_not_json",
            message=failure_of(error).message,
            retryable=False,
        )
    if len(encoded) > most:
        message = (
            f"the output has {len(encoded)} bytes, more than {most}: "
            "store it elsewhere and return where it is found"
        )
        return Failure(kind=OUTPUT_TOO_LARGE, message=message, retryable=False)
    return msgspec.Raw(encoded)
