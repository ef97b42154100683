"""Dead letters: by what failed, those of one failure, and what is done about many at once."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from headway.client.client import Client
from headway_contract.dispatching import LetterFilter, LetterResult, LetterState
from headway_contract.http import InvalidRequest
from litestar import Request, Response, get, post

from headway_console.access.guards import needs
from headway_console.pages import canary, letter
from headway_console.pages.flash import Kind, go_to
from headway_console.pages.form_fields import (
    back,
    choice_of,
    field_of,
    filters_of,
    ids_of,
    moment_of,
    text_of,
)
from headway_console.pages.shell import Page, show
from headway_console.reading.canaries import latest_canary
from headway_console.reading.dead_letters import (
    count_awaiting,
    page_of_failures,
    page_of_letters,
)

_MOST_AT_ONCE = 500
_OF_FAILURES = ("state", "group", "job", "manifest")
_OF_LETTERS = (*_OF_FAILURES, "fingerprint", "since", "before")
_DONE = ("retried", "waits", "acknowledged")


@get("/dead-letters", opt=needs("viewer"))
async def failures(request: Request[Any, Any, Any]) -> Response[Any]:
    """Dead letters by their failures, those with the latest first."""
    if text_of(request, "fingerprint"):
        return go_to(request, f"/dead-letters/list?{request.url.query}")
    state: LetterState = choice_of(request, "state", LetterState) or "awaiting"
    cursor = text_of(request, "cursor")
    async with request.app.state.database.acquire() as connection:
        found = await page_of_failures(
            connection,
            state=state,
            group=text_of(request, "group"),
            job=text_of(request, "job"),
            manifest=text_of(request, "manifest"),
            cursor=cursor,
        )
        awaiting = await count_awaiting(connection)
    return show(
        request,
        "dead_letters.html",
        page=found,
        values=filters_of(request, *_OF_FAILURES),
        state=state,
        awaiting=awaiting,
        cursor=cursor or "",
    )


@get("/dead-letters/list", opt=needs("viewer"))
async def letters(request: Request[Any, Any, Any]) -> Response[str]:
    """Dead letters, of one failure or of all, the newest first."""
    state = choice_of(request, "state", LetterState)
    fingerprint, cursor = text_of(request, "fingerprint"), text_of(request, "cursor")
    asked = LetterFilter(
        state=state,
        group=text_of(request, "group"),
        job=text_of(request, "job"),
        manifest=text_of(request, "manifest"),
        fingerprint=fingerprint,
        created_after=moment_of(request, "since"),
        created_before=moment_of(request, "before"),
    )
    async with request.app.state.database.acquire() as connection:
        found = await page_of_letters(connection, asked, cursor=cursor)
        canary_of_failure = await latest_canary(connection, fingerprint) if fingerprint else None
    return show(
        request,
        "letters.html",
        page=found,
        values=filters_of(request, *_OF_LETTERS),
        fingerprint=fingerprint,
        canary=canary_of_failure,
        cursor=cursor or "",
    )


@post("/dead-letters/change", opt=needs("operator"))
async def change(request: Request[Any, Any, Any]) -> Response[Any]:
    """Retry or acknowledge the checked ones, or all of a failure."""
    client = Client(control=request.app.state.control, actor=request.user.name)
    action, note = await field_of(request, "action"), await field_of(request, "note")
    ids, whole = await ids_of(request), LetterFilter(fingerprint=await field_of(request, "of"))
    if len(ids) > _MOST_AT_ONCE:
        raise InvalidRequest(f"check at most {_MOST_AT_ONCE} at once, or take all of the failure")
    if action in ("retry", "acknowledge") and not ids:
        raise InvalidRequest("nothing is checked: check the dead letters that you mean")
    if action in ("retry-all", "acknowledge-all") and not whole.fingerprint:
        raise InvalidRequest("all of which failure? The form names none")
    match action:
        case "retry":
            results = await client.retry(*ids)
        case "acknowledge":
            results = await client.acknowledge(*ids, note=note)
        case "retry-all":
            results = await client.retry_all(whole)
        case "acknowledge-all":
            results = await client.acknowledge_all(whole, note=note)
        case _:
            raise InvalidRequest(f"{action!r} is nothing that can be done to dead letters")
    text, kind = told(results)
    return go_to(request, await back(request, "/dead-letters"), text=text, kind=kind)


def told(results: Sequence[LetterResult]) -> tuple[str, Kind]:
    """What became of letters, in words."""
    if not results:
        return "no dead letter of these awaits anybody any more", "bad"
    done = any(one.result in _DONE for one in results)
    if len(results) == 1:
        return results[0].text or results[0].result, "good" if done else "bad"
    counts = Counter(one.result for one in results)
    words = ", ".join(f"{many} {_WORDS.get(kind, kind)}" for kind, many in counts.most_common())
    return f"of {len(results)} dead letters: {words}", "good" if done else "bad"


_WORDS = {
    "retried": "run again",
    "waits": "run again once their slots are free",
    "acknowledged": "put away",
    "already_retried": "had been retried already",
    "already_acknowledged": "had been put away already",
    "already_asked": "wait for their slots already",
    "job_retired": "are of retired jobs",
    "pruned": "belong to a manifest that is gone",
    "unknown": "are not known any more",
}

PAGE = Page(
    title="Dead letters",
    path="/dead-letters",
    key="d",
    handlers=(failures, letters, change, *letter.HANDLERS, *canary.HANDLERS),
)
