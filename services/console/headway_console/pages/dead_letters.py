"""Dead letters: by failure, as a list, and one with its attempts and its input to edit.

A canary retries the dead letters of one failure gradually: 1, then 10, then all.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any
from uuid import UUID

from headway_contract import dead_letters as contract
from headway_contract import subjects
from headway_errors import Invalid, RequestFailed
from litestar import Response, get, post
from litestar.params import FromPath
from litestar.response import ServerSentEvent
from msgspec import structs
from msgspec.json import encode

from headway_console.access.guards import needs
from headway_console.pages import form_fields as fields
from headway_console.pages.filters import pretty
from headway_console.pages.inputs import decode_input
from headway_console.pages.live import watch
from headway_console.pages.shell import Kind, back_of, go_to, show, show_list
from headway_console.problems import Problem, problem_of
from headway_console.reading import dead_letters as reading
from headway_console.services import HttpRequest, ask, read

_FAILURE_FILTERS = ("state", "group", "job", "manifest")
_SUCCESSES = ("retried", "waits", "acknowledged")
_PHRASES = {
    "retried": "run again",
    "waits": "run again once their slots are free",
    "acknowledged": "acknowledged",
    "already_retried": "already retried",
    "already_acknowledged": "already acknowledged",
    "already_asked": "already waiting for their slots",
    "job_retired": "of retired jobs",
    "pruned": "of deleted manifests",
    "unknown": "unknown",
}

Change = contract.RetryRequest | contract.AcknowledgeRequest


@get("/dead-letters", opt=needs("viewer"))
async def failures(request: HttpRequest) -> Response[Any]:
    """List dead letters by failure, the latest first."""
    if fields.text_of(request, "fingerprint"):
        return go_to(request, f"/dead-letters/list?{request.url.query}")
    filters = fields.read_filters(request, contract.LetterFilter)
    state = filters.state or "awaiting"
    given = {name: getattr(filters, name) for name in _FAILURE_FILTERS} | {"state": state}
    read_page = partial(reading.page_of_failures, **given)
    return await show_list(request, "dead_letters.html", read_page, *_FAILURE_FILTERS, state=state)


@get("/dead-letters/list", opt=needs("viewer"))
async def letters(request: HttpRequest) -> Response[str]:
    """List dead letters, the newest first."""
    filters = fields.read_filters(
        request,
        contract.LetterFilter,
        created_after=fields.moment_of(request, "since"),
        created_before=fields.moment_of(request, "before"),
    )
    fingerprint = filters.fingerprint
    return await show_list(
        request,
        "letters.html",
        reading.page_of_letters,
        *("since", "before"),
        filters=filters,
        fingerprint=fingerprint,
        canary=await read(request, reading.latest_canary, fingerprint) if fingerprint else None,
    )


@post("/dead-letters/change", opt=needs("operator"))
async def change(request: HttpRequest) -> Response[Any]:
    """Retry or acknowledge the checked letters, or all of a failure."""
    action, note = await fields.field_of(request, "action"), await fields.field_of(request, "note")
    ids, fingerprint = await fields.ids_of(request), await fields.field_of(request, "of")
    kind, _, whole = action.partition("-")
    if kind not in ("retry", "acknowledge") or whole not in ("", "all"):
        raise Invalid(f"unknown action {action!r} for dead letters")
    if not whole and not ids:
        raise Invalid("nothing is selected: select some dead letters first")
    if whole and not fingerprint:
        raise Invalid("the form names no failure")
    target: dict[str, Any] = {"dead_letters": ids}
    if whole:
        target = {"filter": contract.LetterFilter(fingerprint=fingerprint)}
    message: Change = contract.AcknowledgeRequest(**target, note=note)
    if kind == "retry":
        message = contract.RetryRequest(**target)
    return await _change(request, message, to=await back_of(request, "/dead-letters"))


def summary(results: Sequence[contract.LetterResult]) -> tuple[str, Kind]:
    """Summarise the results of a change."""
    if not results:
        return "No open dead letters left", "bad"
    kind: Kind = "good" if any(result.result in _SUCCESSES for result in results) else "bad"
    if len(results) == 1:
        return results[0].text or results[0].result, kind
    counts = Counter(result.result for result in results)
    parts = ", ".join(f"{many} {_PHRASES.get(name, name)}" for name, many in counts.most_common())
    return f"{len(results)} dead letters: {parts}", kind


@get("/dead-letters/{letter:uuid}", opt=needs("viewer"))
async def letter_page(request: HttpRequest, letter: FromPath[UUID]) -> Response[str]:
    """Show one dead letter."""
    found = await read(request, reading.read_letter, letter)
    return await _show(request, found, pretty(found.input))


@post("/dead-letters/{letter:uuid}/retry", opt=needs("operator"))
async def retry(request: HttpRequest, letter: FromPath[UUID]) -> Response[Any]:
    """Run the work again, maybe with an edited input; a refusal shows the form again."""
    given = await fields.field_of(request, "input")
    message = contract.RetryRequest(dead_letters=[letter])
    if not given:
        return await _change(request, message, to=f"/dead-letters/{letter}")
    found = await read(request, reading.read_letter, letter)
    try:
        edited = decode_input(given)
        # Compared as JSON, because in Python true equals 1.
        if encode(edited, order="sorted") != encode(found.input, order="sorted"):
            message = structs.replace(message, input=edited)
        return await _change(request, message, to=f"/dead-letters/{letter}")
    except RequestFailed as error:
        return await _show(request, found, given, problem_of(error))


async def _show(
    request: HttpRequest,
    found: contract.DeadLetterAnswer,
    given: str,
    refusal: Problem | None = None,
) -> Response[str]:
    status, problem = (200, "") if refusal is None else (refusal.status, refusal.detail)
    row = found.status
    content: dict[str, Any] = {"letter": found, "row": row, "given": given, "problem": problem}
    content["manifest_id"] = await read(request, reading.manifest_of, row.dead_letter)
    return show(request, "letter.html", status=status, **content)


async def _change(request: HttpRequest, message: Change, *, to: str) -> Response[Any]:
    """Change dead letters page after page, without letters that are created meanwhile."""
    is_retry = isinstance(message, contract.RetryRequest)
    subject = subjects.RETRY_REQUEST if is_retry else subjects.ACKNOWLEDGE_REQUEST
    results: list[contract.LetterResult] = []
    while True:
        page = await ask(request, subject, message, contract.LettersChanged)
        results += page.results
        if not page.more or message.filter is None:
            text, kind = summary(results)
            return go_to(request, to, text=text, kind=kind)
        bounded = structs.replace(message.filter, created_before=page.created_before)
        message = structs.replace(message, filter=bounded, after=page.last)


@post("/dead-letters/canary", opt=needs("operator"))
async def begin_canary(request: HttpRequest) -> Response[Any]:
    """Begin a canary for a failure, or open the one that runs."""
    fingerprint = await fields.field_of(request, "of")
    if not fingerprint:
        raise Invalid("the form names no failure to retry")
    message = contract.BeginCanaryRequest(fingerprint=fingerprint)
    canary = await ask(request, subjects.BEGIN_CANARY_REQUEST, message, contract.CanaryStatus)
    return go_to(request, f"/dead-letters/canary/{canary.id}")


@get("/dead-letters/canary/{canary:uuid}", opt=needs("viewer"))
async def canary_page(request: HttpRequest, canary: FromPath[UUID]) -> Response[str]:
    """Show the progress of a canary."""
    return show(request, "canary.html", canary=await read(request, reading.read_canary, canary))


@get("/dead-letters/canary/{canary:uuid}/live", opt=needs("viewer"), sync_to_thread=False)
def canary_live(request: HttpRequest, canary: FromPath[UUID]) -> ServerSentEvent:
    """Send an event when the canary changes."""
    return watch(request, partial(reading.read_canary, canary=canary))


@post("/dead-letters/canary/{canary:uuid}/stop", opt=needs("operator"))
async def stop_canary(request: HttpRequest, canary: FromPath[UUID]) -> Response[Any]:
    """Stop a canary; work under way continues."""
    message = contract.StopCanaryRequest(canary=canary)
    await ask(request, subjects.STOP_CANARY_REQUEST, message, contract.CanaryStatus)
    return go_to(request, f"/dead-letters/canary/{canary}", text="Canary stopped")
