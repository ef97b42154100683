"""What went wrong, in the words of the protocol and within its limits."""

import traceback
from collections.abc import Callable

from headway_contract.lifecycle import Failure
from headway_contract.limits import KIND_LIMIT, KINDS_LIMIT, MESSAGE_LIMIT, STACK_LIMIT

from headway.errors import Fatal

# Every exception is one of these, so to name them says nothing.
_MEANINGLESS = (object, BaseException)


def failure_of(error: BaseException) -> Failure:
    """An exception as a failure, with the kinds of its base classes."""
    own, *bases = (one for one in type(error).__mro__ if one not in _MEANINGLESS)
    return Failure(
        kind=_kind(own),
        kinds=[_kind(base) for base in bases[:KINDS_LIMIT]],
        message=_told(lambda: storable(str(error)))[:MESSAGE_LIMIT],
        stack=_told(lambda: storable("".join(traceback.format_exception(error))))[-STACK_LIMIT:],
        retryable=not isinstance(error, Fatal),
    )


def _kind(of: type) -> str:
    return storable(of.__name__.lstrip("_"))[:KIND_LIMIT] or "Exception"


def _told(tell: Callable[[], str]) -> str:
    try:
        return tell()
    except BaseException as another:  # noqa: BLE001 - an exception that cannot say what it is
        return f"it cannot be told: {type(another).__name__}"


def storable(text: str) -> str:
    """Text without what cannot be stored: NUL characters and halves of surrogate pairs."""
    return text.encode(errors="replace").decode().replace("\x00", "\\0")
