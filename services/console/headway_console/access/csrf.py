"""Protection against cross-site request forgery.

A browser sends a cookie with requests of foreign pages too. A change therefore needs an origin of
this console and the token of the session, which no other page can read. htmx sends the token as a
header, plain forms as a field.
"""

import hmac
from collections.abc import Mapping

from headway_console.access.sessions import Seal

HEADER = "x-csrf-token"
FIELD = "csrf"
_PURPOSE = "csrf"


class Forged(Exception):
    """A request that no page of this console made."""


def csrf_token(seal: Seal, session: str) -> str:
    """Return the CSRF token of a session."""
    return seal.sign(_PURPOSE, session)


def check_origin(headers: Mapping[str, str], origins: frozenset[str]) -> None:
    """Raise `Forged` unless the browser names an origin of this console."""
    site = headers.get("sec-fetch-site")
    if site is not None and site != "same-origin":
        raise Forged(f"the request comes from another site ({site})")
    origin = headers.get("origin")
    if origin is not None and not _is_ours(origin.lower(), headers.get("host", ""), origins):
        raise Forged(f"the request comes from {origin}")
    if site is None and origin is None:
        raise Forged("the request names no origin")


def _is_ours(origin: str, host: str, origins: frozenset[str]) -> bool:
    """Tell whether an origin is known, or equal to the host if none is configured."""
    if origins:
        return origin in origins
    return origin.partition("://")[2] == host.lower()


def check_token(seal: Seal, session: str, given: str | None) -> None:
    """Raise `Forged` unless the request has the token of its session."""
    expected = csrf_token(seal, session)
    if given is None or not hmac.compare_digest(expected.encode(), given.encode()):
        raise Forged(f"the request lacks the token of its session: send it as {HEADER}")
