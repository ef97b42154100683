"""Read filters from the URL and fields from forms.

Pages show times in the zone that the person chose: the browser's, which sends it in a cookie, or
UTC, or on pages of one manifest its own. A URL with a time names its zone, so that it means the
same to everybody; without a zone it means UTC.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, TypeVar, get_args
from urllib.parse import unquote
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from headway_contract.fitting import options_of, problem_of
from headway_decisions.capacity.rates import parse_rate
from headway_errors import Invalid
from msgspec import Struct, inspect, structs

from headway_console.services import HttpRequest

Kind = TypeVar("Kind", bound=Struct)
ZoneChoice = Literal["browser", "utc", "manifest"]

_BROWSER_COOKIE = "headway-zone"
CHOICE_COOKIE = "headway-times"
_ZONE_FIELD = "zone"
_TIMES = ("since", "before", "ended_since", "ended_before")
UTC = ZoneInfo("UTC")
# Number of entries that a form may change.
MAX_AT_ONCE = 500


def text_of(request: HttpRequest, name: str) -> str | None:
    """Return a filter, or `None` if it is empty."""
    return str(request.query_params.get(name, "")).strip() or None


def read_filters(request: HttpRequest, kind: type[Kind], **values: Any) -> Kind:
    """Read the filters of a list by the fields of a struct; raises `Invalid`."""
    for field in structs.fields(kind):
        if field.name not in values and (text := text_of(request, field.name)):
            values[field.name] = _parse(request, field.name, text, field.type)
    return kind(**values)


def _parse(request: HttpRequest, name: str, text: str, kind: Any) -> Any:
    options = tuple(map(type, options_of(kind)))
    if inspect.StrType in options:
        return text
    if inspect.VarTupleType in options:
        return tuple(text.replace(",", " ").split())
    if inspect.DateTimeType in options:
        return moment_of(request, name)
    try:
        return msgspec.convert(text, kind, strict=False)
    except msgspec.ValidationError as error:
        raise Invalid(f"{name}: {problem_of(text, kind)}") from error


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


def id_of(given: object, name: str) -> UUID:
    """Parse an id."""
    try:
        return UUID(str(given).strip())
    except ValueError:
        raise Invalid(f"{name}: invalid id {given!r}") from None


def filters_of(request: HttpRequest, *names: str) -> dict[str, str]:
    """Return the filters of the URL, with times as a field shows them, and their zone."""
    values = {name: text_of(request, name) or "" for name in names}
    for name in _TIMES:
        if values.get(name) and (moment := moment_of(request, name)):
            zone = shown_zone(request)
            precision = "seconds" if moment.second else "minutes"
            local = moment.astimezone(zone).replace(tzinfo=None)
            values[name] = local.isoformat(timespec=precision)
            values[_ZONE_FIELD] = zone.key
    return values


def zone_of(request: HttpRequest) -> ZoneInfo:
    """Return the zone of times in the URL, or the shown one if it has no times."""
    if named := text_of(request, _ZONE_FIELD):
        found = _read_zone(named)
        if found is None:
            raise Invalid(f"{_ZONE_FIELD}: unknown time zone {named!r}; write Europe/Berlin or UTC")
        return found
    return UTC if any(text_of(request, name) for name in _TIMES) else shown_zone(request)


def zone_choice(request: HttpRequest) -> ZoneChoice:
    """Return the zone that the person chose; the browser's by default."""
    return read_choice(request.cookies.get(CHOICE_COOKIE, ""))


def read_choice(text: str) -> ZoneChoice:
    """Return a choice of zone by its name; the browser's if there is none."""
    return next((choice for choice in get_args(ZoneChoice) if choice == text), "browser")


def browser_zone(request: HttpRequest) -> ZoneInfo | None:
    """Return the zone of the browser; `None` until a script has sent it."""
    return _read_zone(unquote(request.cookies.get(_BROWSER_COOKIE, "")))


def shown_zone(request: HttpRequest, own: str = "") -> ZoneInfo:
    """Return the zone in which a page shows times; `own` is the zone of its manifest."""
    choice = zone_choice(request)
    if choice == "utc":
        return UTC
    of_manifest = _read_zone(own) if choice == "manifest" else None
    return of_manifest or browser_zone(request) or UTC


async def ids_of(request: HttpRequest) -> list[UUID]:
    """Return the ids that were checked in a form; raises `Invalid` for too many."""
    given = (await request.form()).getall("id", [])
    if len(given) > MAX_AT_ONCE:
        raise Invalid(f"select at most {MAX_AT_ONCE} at once")
    return sorted({id_of(text, "id") for text in given})


def limits_of(sent: Mapping[str, Any]) -> dict[str, Any]:
    """Read the limits of a form, `None` for an empty one; raises `ValueError`."""
    max_active, rate = (str(sent.get(field, "")).strip() for field in ("max_active", "rate"))
    return {
        "max_active": int(max_active) if max_active else None,
        "rate": parse_rate(rate) if rate else None,
    }


async def field_of(request: HttpRequest, name: str) -> str:
    """Return a field of a form."""
    return str((await request.form()).get(name, "")).strip()


def _read_zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name) if name else None
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
