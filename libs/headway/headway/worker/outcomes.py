"""Exceptions and return values of bodies, in the words and the limits of the protocol."""

import traceback
from collections.abc import Callable
from inspect import iscoroutine
from types import TracebackType
from typing import Any, NamedTuple

import msgspec
from headway_contract import fields
from headway_contract.lifecycle import Failure

from headway.define.jobs import holds_nul
from headway.errors import Fatal


class Cancelled(NamedTuple):
    """The outcome of a run that ended early because of a cancel."""

    reason: str


# The encoded output of a completed run, its failure, or its cancellation.
Outcome = msgspec.Raw | Failure | Cancelled

_LOOPS = ("asyncio", "concurrent", "threading", "uvloop")
# Every exception has these bases, so their names say nothing.
_UNINFORMATIVE = (object, BaseException)


def failure_of(error: BaseException) -> Failure:
    """Describe an exception as a failure, with the kinds of its base classes."""
    own, *bases = (base for base in type(error).__mro__ if base not in _UNINFORMATIVE)
    frames = _frames_of_body(error)
    stack = _text_of(lambda: "".join(traceback.format_exception(type(error), error, frames)))
    return Failure(
        kind=_kind(own),
        kinds=[_kind(base) for base in bases[: fields.KINDS_LIMIT]],
        message=_text_of(lambda: str(error))[: fields.MESSAGE_LIMIT],
        stack=stack[-fields.STACK_LIMIT :],
        retryable=not isinstance(error, Fatal),
    )


def _frames_of_body(error: BaseException) -> TracebackType | None:
    """Leave out the frames of the worker and of the event loop before those of the body."""
    frames = error.__traceback__
    while frames is not None:
        package = str(frames.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        if package.partition("_")[0] != "headway" and package not in _LOOPS:
            return frames
        frames = frames.tb_next
    return error.__traceback__


def encode_output(output: Any, most: int = fields.OUTPUT_LIMIT) -> msgspec.Raw | Failure:
    """Encode an output as JSON of at most `most` bytes, or return why it cannot be kept."""
    try:
        encoded = msgspec.json.encode(output, enc_hook=_refuse)
        if isinstance(output, msgspec.Raw):
            # Invalid JSON would make the event unreadable.
            msgspec.json.decode(encoded, type=msgspec.Raw)
        if holds_nul(encoded):
            raise ValueError("the output holds a NUL character, which cannot be stored")
    except Exception as error:  # noqa: BLE001 - an output may run code of its own
        message = failure_of(error).message
        return Failure(kind="output_not_json", message=message, retryable=False)
    if len(encoded) > most:
        message = (
            f"the output has {len(encoded)} bytes, more than {most}: "
            "store it elsewhere and return where it is found"
        )
        return Failure(kind=fields.OUTPUT_TOO_LARGE, message=message, retryable=False)
    return msgspec.Raw(encoded)


def _refuse(given: Any) -> Any:
    """Explain why a value is not JSON."""
    if iscoroutine(given):
        given.close()  # without a warning that it was never awaited
        name = given.__qualname__
        raise TypeError(f"the body returned the coroutine {name}(), which never ran: forgot await?")
    raise TypeError(f"the output holds a value of type {type(given).__name__}, which is not JSON")


def storable(text: str) -> str:
    """Replace characters that cannot be stored: NUL and halves of surrogate pairs."""
    return text.encode(errors="replace").decode().replace("\x00", "\\0")


def _kind(of: type) -> str:
    return storable(of.__name__.lstrip("_"))[: fields.KIND_LIMIT] or "Exception"


def _text_of(describe: Callable[[], str]) -> str:
    try:
        return storable(describe())
    except BaseException as error:  # noqa: BLE001 - an exception whose text raises
        return f"its text is not available: {type(error).__name__}"
