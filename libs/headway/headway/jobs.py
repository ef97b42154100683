"""A job's function, and how its input is read."""

import inspect
import re
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

# A NUL character as JSON spells it, which PostgreSQL does not store; after an even number
# of backslashes, or else it is only text about one.
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def holds_nul(encoded: bytes) -> bool:
    """Whether encoded JSON holds a NUL character."""
    return _NUL.search(encoded) is not None


@dataclass(frozen=True)
class Job:
    """A named function that workers run, and the type of its input if it takes one."""

    name: str
    function: Callable[..., Any]
    group: str
    description: str
    timeout_seconds: float
    cancel_grace_seconds: float
    priority: int
    on_lost_contact: Literal["stop", "continue"]
    takes_input: bool
    input_type: Any

    @property
    def is_async(self) -> bool:
        """Whether the body is a coroutine function."""
        return inspect.iscoroutinefunction(self.function)

    def read_input(self, raw: Any) -> Any:
        """Convert JSON to what the body takes, or raise `msgspec.ValidationError`."""
        if not self.takes_input:
            if raw is not None:
                raise msgspec.ValidationError(f"job {self.name!r} takes no input")
            return None
        return msgspec.convert(raw, self.input_type)

    def input_schema(self) -> dict[str, Any] | None:
        """The JSON Schema of the input, or none where any JSON will do."""
        if not self.takes_input or self.input_type is Any:
            return None
        return msgspec.json.schema(self.input_type)


def input_type_of(function: Callable[..., Any]) -> tuple[bool, Any]:
    """Whether a body takes an input besides its context, and of what type."""
    parameters = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    if not 1 <= len(parameters) <= 2:
        raise TypeError(f"{function.__qualname__} must take a context and at most one input")
    if len(parameters) == 1:
        return False, None
    hints = typing.get_type_hints(function)
    return True, hints.get(parameters[1].name, Any)
