"""Read and check the requests of people and programs."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from headway.define.inputs import problem_of_input
from headway.define.jobs import holds_nul
from headway_contract.fields import INPUT_LIMIT
from headway_contract.fitting import misfits_of
from headway_errors import Invalid
from headway_jetstream_kit import endpoints
from headway_jetstream_kit.endpoints import Endpoint
from msgspec import Struct

Question = TypeVar("Question", bound=Struct)

# Calendars and zones are uncertain outside of these years.
_KNOWN_YEARS = range(1970, 2200)


def typed(question: type[Question], answer: Callable[[Question], Awaitable[Struct]]) -> Endpoint:
    """Return an endpoint that reads and writes JSON and reports every problem of a request."""
    return endpoints.typed(question, answer, misfits=misfits_of)


def aware(at: datetime) -> datetime:
    """Return a time that has an offset and a plausible year; raises `Invalid` otherwise."""
    if at.tzinfo is None:
        raise Invalid(
            f"the time {at.isoformat()} has no offset: write one, as in {at.isoformat()}Z"
        )
    if at.year not in _KNOWN_YEARS:
        first, last = _KNOWN_YEARS[0], _KNOWN_YEARS[-1]
        raise Invalid(f"the year of {at.isoformat()} is not between {first} and {last}")
    return at


def input_problem(
    job: str, schema: dict[str, Any] | None, takes_input: bool, value: Any
) -> str | None:
    """Return why a job cannot take an input from a request, or `None`."""
    problem = problem_of_input(schema, takes_input, value)
    if problem is not None:
        return f"the input does not fit job {job!r}: {problem}"
    encoded = msgspec.json.encode(value)
    if len(encoded) > INPUT_LIMIT:
        return f"the input is larger than {INPUT_LIMIT} bytes: send where it is found"
    if holds_nul(encoded):
        return "the input holds a NUL character, which cannot be stored"
    return None
