"""Groups: limits, active runs, and waiting work."""

from typing import Any

import msgspec
from headway_contract import subjects
from headway_contract.fields import Changed, Rate
from headway_contract.operations import ChangeGroupRequest
from headway_decisions.capacity.rates import parse_rate, rate_in_words
from headway_errors import NotFound, RequestFailed, Unavailable
from litestar import Request, Response, get, post
from litestar.params import FromPath

from headway_console.access.guards import needs
from headway_console.pages.flash import back_of, go_to, refused
from headway_console.pages.shell import Page, show
from headway_console.reading.groups import GroupRow, page_of_groups
from headway_console.services import ask

_FIELDS = ("max_active", "priority", "enabled", "rate")


@get("/groups", opt=needs("viewer"))
async def groups(request: Request[Any, Any, Any]) -> Response[str]:
    """List groups."""
    cursor = request.query_params.get("cursor") or None
    async with request.app.state.database.acquire() as connection:
        page = await page_of_groups(connection, cursor=cursor)
    return show(request, "groups.html", page=page, cursor=cursor, rate_of=rate_of)


@get("/groups/{name:str}", opt=needs("viewer"))
async def group(request: Request[Any, Any, Any], name: FromPath[str]) -> Response[str]:
    """Show one group."""
    async with request.app.state.database.acquire() as connection:
        page = await page_of_groups(connection, name=name)
    if not page.items:
        raise NotFound(f"there is no group {name!r}: declaring a job in it creates it")
    return show(request, "group.html", group=page.items[0], rate_of=rate_of)


@post("/groups/bulk", opt=needs("operator"))
async def bulk(request: Request[Any, Any, Any]) -> Response[Any]:
    """Enable or disable the checked groups."""
    sent, back = await request.form(), await back_of(request, "/groups")
    names = [str(name) for name in sent.getall("id", [])]
    done, wrong = 0, []
    for name in names:
        try:
            await _change(request, name, enabled=sent.get("action") == "enable")
        except Unavailable as error:
            return refused(request, back, error)  # the others would fail too
        except RequestFailed as error:
            wrong.append(f"{name}: {error}")
        else:
            done += 1
    word = "enabled" if sent.get("action") == "enable" else "disabled"
    text = "\n".join([f"{done} {'group' if done == 1 else 'groups'} {word}.", *wrong])
    return go_to(request, back, text=text, kind="bad" if wrong else "good")


@post("/groups/{name:str}/switch", opt=needs("operator"))
async def switch(request: Request[Any, Any, Any], name: FromPath[str]) -> Response[Any]:
    """Enable or disable a group."""
    sent, back = await request.form(), await back_of(request, f"/groups/{name}")
    try:
        answer = await _change(request, name, enabled=sent.get("enabled") == "yes")
    except RequestFailed as error:
        return refused(request, back, error)
    return go_to(request, back, text=answer.text)


@post("/groups/{name:str}/change", opt=needs("operator"))
async def change(request: Request[Any, Any, Any], name: FromPath[str]) -> Response[Any]:
    """Change the limits of a group, or reset one to code."""
    sent, here = await request.form(), f"/groups/{name}"
    returned = sent.get("give_back")
    try:
        if returned in _FIELDS:
            answer = await _change(request, name, give_back=[returned])
        else:
            answer = await _change(request, name, **await _wanted(request, name, sent))
    except RequestFailed as error:
        return refused(request, here, error)
    except ValueError as error:
        return go_to(request, here, text=str(error), kind="bad")
    return go_to(request, here, text=answer.text)


async def _change(request: Request[Any, Any, Any], name: str, **fields: Any) -> Changed:
    wish = ChangeGroupRequest(group=name, **fields)
    return await ask(request, subjects.CHANGE_GROUP_REQUEST, wish, Changed)


async def _wanted(request: Request[Any, Any, Any], name: str, sent: Any) -> dict[str, Any]:
    """Return the changed fields; raises `ValueError` for invalid input."""
    async with request.app.state.database.acquire() as connection:
        page = await page_of_groups(connection, name=name)
    row = page.items[0] if page.items else None
    most, rate = str(sent.get("max_active", "")).strip(), str(sent.get("rate", "")).strip()
    try:
        given: dict[str, Any] = {
            "max_active": int(most) if most else None,
            "priority": int(str(sent.get("priority", "0"))),
            "rate": parse_rate(rate) if rate else None,
        }
    except ValueError as error:
        raise ValueError(f"Nothing changed: {error}") from error
    differs = {
        field: value
        for field, value in given.items()
        if row is None or value != (_rate(row) if field == "rate" else getattr(row, field))
    }
    if not differs:
        raise ValueError("Nothing changed: the values are the same.")
    return differs


def rate_of(row: GroupRow) -> str:
    """Write the rate of a group; empty without one."""
    rate = _rate(row)
    return rate_in_words(rate) if rate else ""


def _rate(row: GroupRow) -> Rate | None:
    return msgspec.convert(row.rate, Rate) if row.rate else None


PAGE = Page(title="Groups", path="/groups", handlers=(groups, group, bulk, switch, change), key="u")
