"""Read filters from the URL and fields from forms.

Times in filters are in the time zone of the browser, which sends it in a cookie. A URL with a time
names its zone, so that it means the same to everybody; without a zone it means UTC.
"""

from datetime import datetime
from typing import Any, get_args
from urllib.parse import unquote
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from headway_errors import Invalid

from headway_console.services import HttpRequest

_ZONE_COOKIE = "headway-zone"
_ZONE_FIELD = "zone"
_TIMES = ("since", "before")
UTC = ZoneInfo("UTC")
# Number of entries that a form may change.
MAX_AT_ONCE = 500


def text_of(request: HttpRequest, name: str) -> str | None:
    """Return a filter, or `None` if it is empty."""
    return str(request.query_params.get(name, "")).strip() or None


def texts_of(request: HttpRequest, *names: str) -> dict[str, Any]:
    """Return filters by name, `None` if they are empty."""
    return {name: text_of(request, name) for name in names}


def choice_of(request: HttpRequest, name: str, of: Any) -> Any:
    """Return a filter that takes the values of a `Literal`."""
    given = text_of(request, name)
    choices = get_args(of)
    if given is not None and given not in choices:
        raise Invalid(f"{name}: {given!r} is not one of {', '.join(choices)}")
    return given


def moment_of(request: HttpRequest, name: str) -> datetime | None:
    """Return a filter by time; without an offset it is in the zone of the URL."""
    given = text_of(request, name)
    if given is None:
        return None
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        raise Invalid(
            f"{name}: invalid time {given!r}; write 2026-11-16T02:30, with or without an offset"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=zone_of(request))


def times_of(request: HttpRequest) -> dict[str, Any]:
    """Return the filters `since` and `before`."""
    return {name: moment_of(request, name) for name in _TIMES}


def id_of(given: object, name: str) -> UUID:
    """Parse an id."""
    try:
        return UUID(str(given).strip())
    except ValueError:
        raise Invalid(f"{name}: invalid id {given!r}") from None


def id_filter(request: HttpRequest, name: str) -> UUID | None:
    """Return a filter by id, or `None` if it is empty."""
    given = text_of(request, name)
    return None if given is None else id_of(given, name)


def filters_of(request: HttpRequest, *names: str) -> dict[str, str]:
    """Return the filters of the URL, with times as a field shows them, and their zone."""
    values = {name: text_of(request, name) or "" for name in names}
    for name in _TIMES:
        if values.get(name) and (moment := moment_of(request, name)):
            zone = zone_of(request)
            values[name] = f"{moment.astimezone(zone):%Y-%m-%dT%H:%M}"
            values[_ZONE_FIELD] = zone.key
    return values


def zone_of(request: HttpRequest) -> ZoneInfo:
    """Return the zone of the URL, or of the browser if the URL has no times."""
    if named := text_of(request, _ZONE_FIELD):
        found = _read_zone(named)
        if found is None:
            raise Invalid(f"{_ZONE_FIELD}: unknown time zone {named!r}; write Europe/Berlin or UTC")
        return found
    if any(text_of(request, name) for name in _TIMES):
        return UTC
    return _read_zone(unquote(request.cookies.get(_ZONE_COOKIE, ""))) or UTC


async def ids_of(request: HttpRequest) -> list[UUID]:
    """Return the ids that were checked in a form; raises `Invalid` for too many."""
    given = (await request.form()).getall("id", [])
    if len(given) > MAX_AT_ONCE:
        raise Invalid(f"check at most {MAX_AT_ONCE} at once")
    return sorted({id_of(text, "id") for text in given})


async def field_of(request: HttpRequest, name: str) -> str:
    """Return a field of a form."""
    return str((await request.form()).get(name, "")).strip()


def _read_zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name) if name else None
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
