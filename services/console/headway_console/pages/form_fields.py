"""What a page is asked for: filters out of the URL, and fields out of forms."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, get_args
from uuid import UUID

from headway_contract.http import InvalidRequest
from litestar import Request

from headway_console.pages.sign_in import safe_path
from headway_console.pages.zones import FIELD, TIMES, zone_of


def text_of(request: Request[Any, Any, Any], name: str) -> str | None:
    """A filter; none if it was left empty."""
    return str(request.query_params.get(name, "")).strip() or None


def choice_of(request: Request[Any, Any, Any], name: str, of: Any) -> Any:
    """A filter that takes only some words: those of a `Literal`."""
    given = text_of(request, name)
    words = get_args(of)
    if given is not None and given not in words:
        raise InvalidRequest(f"{name}: {given!r} is none of {', '.join(words)}")
    return given


def moment_of(request: Request[Any, Any, Any], name: str) -> datetime | None:
    """A filter by time; without an offset it is in the zone that the address names."""
    given = text_of(request, name)
    if given is None:
        return None
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        raise InvalidRequest(
            f"{name}: {given!r} is no time: write 2026-11-16T02:30, or with its offset"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=zone_of(request))


def id_of(given: object, name: str) -> UUID:
    """An id."""
    try:
        return UUID(str(given).strip())
    except ValueError:
        raise InvalidRequest(f"{name}: {given!r} is no id") from None


def id_asked(request: Request[Any, Any, Any], name: str) -> UUID | None:
    """A filter by id."""
    given = text_of(request, name)
    return None if given is None else id_of(given, name)


def filters_of(request: Request[Any, Any, Any], *names: str) -> dict[str, str]:
    """The filters in the URL, times as a field shows them, with the zone that they are in."""
    values = {name: text_of(request, name) or "" for name in names}
    times = {name: moment_of(request, name) for name in TIMES if values.get(name)}
    if times:
        zone = zone_of(request)
        values |= {
            name: f"{moment.astimezone(zone):%Y-%m-%dT%H:%M}"
            for name, moment in times.items()
            if moment is not None
        }
        values[FIELD] = zone.key
    return values


async def ids_of(request: Request[Any, Any, Any], name: str = "id") -> list[UUID]:
    """The ids that were checked in a form."""
    form = await request.form()
    return sorted({id_of(one, name) for one in form.getall(name, [])})


async def field_of(request: Request[Any, Any, Any], name: str) -> str:
    """A field of a form."""
    form: Mapping[str, Any] = await request.form()
    return str(form.get(name, "")).strip()


async def back(request: Request[Any, Any, Any], otherwise: str) -> str:
    """The page that a form was on."""
    given = await field_of(request, "back")
    return safe_path(given) if given else otherwise
