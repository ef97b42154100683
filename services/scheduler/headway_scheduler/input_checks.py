"""Inputs that somebody gives by hand, in place of the one that the code states."""

from typing import Any

import msgspec
from headway.define.inputs import problem_of_input
from headway.define.jobs import holds_nul
from headway_contract.fields import INPUT_LIMIT


def problem_of_given(
    job: str, schema: dict[str, Any] | None, takes_input: bool, given: Any
) -> str | None:
    """Why a job cannot be given this input, or none."""
    problem = problem_of_input(schema, takes_input, given)
    if problem is not None:
        return f"the input does not fit job {job!r}: {problem}"
    encoded = msgspec.json.encode(given)
    if len(encoded) > INPUT_LIMIT:
        return f"the input is larger than {INPUT_LIMIT} bytes: send where it is found"
    if holds_nul(encoded):
        return "the input holds a NUL character, which cannot be stored"
    return None
