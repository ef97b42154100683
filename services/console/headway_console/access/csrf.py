"""Requests that a foreign page has made a browser send.

A cookie comes along with whatever a browser sends, so for a change it is not enough. The browser
must say that the request comes from our own page, and the page must know the token that belongs to
the session, which no other page can read. htmx sends it as a header, plain forms as a field.
"""

import hmac
from collections.abc import Mapping

from headway_console.access.sessions import Seal

HEADER = "x-csrf-token"
FIELD = "csrf"
_PURPOSE = "csrf"


class Forged(Exception):
    """A request that our own page has not made."""


def csrf_token(seal: Seal, session: str) -> str:
    """What only pages of this session know."""
    return seal.sign(_PURPOSE, session)


def check_origin(headers: Mapping[str, str], origins: frozenset[str]) -> None:
    """Raise `Forged` unless the browser says that our own page has asked."""
    site = headers.get("sec-fetch-site")
    if site is not None and site != "same-origin":
        raise Forged(f"the request comes from another site ({site})")
    origin = headers.get("origin")
    if origin is not None and not _is_ours(origin.lower(), headers.get("host", ""), origins):
        raise Forged(f"the request comes from {origin}")
    if site is None and origin is None:
        raise Forged("the request does not say which page it comes from")


def _is_ours(origin: str, host: str, origins: frozenset[str]) -> bool:
    """Whether an origin is ours: one of those known, or without any how we were called."""
    if origins:
        return origin in origins
    return origin.partition("://")[2] == host.lower()


def check_token(seal: Seal, session: str, given: str | None) -> None:
    """Raise `Forged` unless the request brings the token of its session."""
    expected = csrf_token(seal, session)
    if given is None or not hmac.compare_digest(expected.encode(), given.encode()):
        raise Forged(f"the request lacks the token of its session: send it as {HEADER}")
