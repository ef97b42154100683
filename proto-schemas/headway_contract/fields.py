"""Fields that many messages share, the limits of their sizes, and the base of requests."""

import re
from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

# Names become subject tokens. The lookahead, because `$` alone also matches before a newline.
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$(?!\n)"
MANIFEST_ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,199}$"
_NAME, _MANIFEST_ID = re.compile(NAME_PATTERN), re.compile(MANIFEST_ID_PATTERN)
# PostgreSQL does not store NUL characters.
_NO_NUL = r"^[^\x00]*$"

Name = Annotated[str, Meta(pattern=NAME_PATTERN)]
ManifestId = Annotated[str, Meta(max_length=200, pattern=_NO_NUL)]
Text = Annotated[str, Meta(max_length=255, pattern=_NO_NUL)]
RequiredText = Annotated[str, Meta(min_length=1, max_length=255, pattern=_NO_NUL)]
LongText = Annotated[str, Meta(max_length=1000, pattern=_NO_NUL)]
Priority = Annotated[int, Meta(ge=0, le=31)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]
MaxActive = Annotated[int, Meta(ge=0, le=1_000_000)]
Seconds = Annotated[float, Meta(ge=0, le=10 * 366 * 86_400)]
StartWithin = Annotated[float, Meta(gt=0, le=10 * 366 * 86_400)]
Moment = Annotated[datetime, Meta(tz=True)]

# In bytes; every receiver checks.
INPUT_LIMIT = 256 * 1024
OUTPUT_LIMIT = 256 * 1024
# Limits of a failure, in characters. A longer stack is cut at its start.
KIND_LIMIT = 255
KINDS_LIMIT = 32
MESSAGE_LIMIT = 4 * 1024
STACK_LIMIT = 16 * 1024
OUTPUT_TOO_LARGE = "output_too_large"


# Fewer digits of an id are refused: a change should not hit by accident what it does not name.
_ID_START = re.compile(r"(?:[0-9a-fA-F]-?){4,31}")


def begins_id(text: str) -> bool:
    """Return whether a text may be the beginning of an id: at least 4 hexadecimal digits."""
    return _ID_START.fullmatch(text) is not None


class Request(Struct, frozen=True, kw_only=True):
    """A request that changes something; the audit names its `actor`."""

    actor: Text = ""


class KeyedRequest(Request, frozen=True, kw_only=True):
    """A request that is carried out once for each `key`, which is remembered for a week."""

    key: Text | None = None


class Changed(Struct, frozen=True, kw_only=True):
    """The request was carried out; `text` describes the change."""

    text: str


class Rate(Struct, frozen=True, kw_only=True):
    """The maximum number of runs that begin in any period of this length."""

    count: Count
    period_seconds: Annotated[float, Meta(gt=0, le=366 * 86_400)]


class InvalidName(ValueError):
    """A name that cannot be part of a subject."""


def check_name(kind: str, name: object) -> str:
    """Return `name` if it may become a subject token, or raise `InvalidName`."""
    return _check(_NAME, 64, f"{kind} name", name)


def check_manifest_id(external_id: object) -> str:
    """Return a manifest's id if it is valid, or raise `InvalidName`."""
    return _check(_MANIFEST_ID, 200, "manifest id", external_id)


def _check(pattern: re.Pattern[str], longest: int, kind: str, name: object) -> str:
    if isinstance(name, str) and pattern.fullmatch(name):
        return name
    raise InvalidName(
        f"{kind} {name!r} is not valid: use 1 to {longest} letters, digits, '-' and '_', "
        "starting with a letter or digit (no spaces, no dots)"
    )
