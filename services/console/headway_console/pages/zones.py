"""The zone of whoever looks: what times in filters mean.

The browser tells it in a cookie. An address with a time in it names its zone itself, so that it
means the same to everybody; one without a zone means UTC.
"""

from typing import Any
from urllib.parse import unquote
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from headway_contract.http import InvalidRequest
from litestar import Request

COOKIE = "headway-zone"
FIELD = "zone"
TIMES = ("since", "before")
UTC = ZoneInfo("UTC")


def zone_of(request: Request[Any, Any, Any]) -> ZoneInfo:
    """The zone of the address, or of the browser where the address has no times."""
    given = request.query_params
    if named := str(given.get(FIELD, "")).strip():
        found = _read(named)
        if found is None:
            raise InvalidRequest(f"{FIELD}: {named!r} is no zone: write Europe/Berlin or UTC")
        return found
    if any(str(given.get(name, "")).strip() for name in TIMES):
        return UTC
    return _read(unquote(request.cookies.get(COOKIE, ""))) or UTC


def _read(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name) if name else None
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
