"""Dead letters: by failure, as a list, and one with its attempts and its input to edit."""

from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec
from headway.client.control import PATIENT_SECONDS
from headway_contract import subjects
from headway_contract.dead_letters import (
    AcknowledgeRequest,
    DeadLetterAnswer,
    LetterFilter,
    LetterResult,
    LettersChanged,
    LetterState,
    RetryRequest,
)
from headway_contract.work_queue import InputAnswer, InputQuestion
from headway_errors import Invalid, NotFound, RequestFailed
from litestar import Request, Response, get, post
from litestar.params import FromPath
from msgspec import structs

from headway_console.access.guards import needs
from headway_console.pages import canary
from headway_console.pages.filters import pretty
from headway_console.pages.flash import Kind, back_of, go_to
from headway_console.pages.form_fields import (
    choice_of,
    field_of,
    filters_of,
    ids_of,
    moment_of,
    text_of,
)
from headway_console.pages.shell import Page, show
from headway_console.problems import problem_of
from headway_console.reading.canaries import latest_canary
from headway_console.reading.dead_letters import (
    count_awaiting,
    manifest_of,
    page_of_failures,
    page_of_letters,
    read_letter,
)
from headway_console.services import ask

_MAX_AT_ONCE = 500
_FAILURE_FILTERS = ("state", "group", "job", "manifest")
_LETTER_FILTERS = (*_FAILURE_FILTERS, "fingerprint", "since", "before")
_SUCCESSES = ("retried", "waits", "acknowledged")


class _Unfit(Invalid):
    """An input that the job does not accept."""


@get("/dead-letters", opt=needs("viewer"))
async def failures(request: Request[Any, Any, Any]) -> Response[Any]:
    """List dead letters by failure, the latest first."""
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
        values=filters_of(request, *_FAILURE_FILTERS),
        state=state,
        awaiting=awaiting,
        cursor=cursor or "",
    )


@get("/dead-letters/list", opt=needs("viewer"))
async def letters(request: Request[Any, Any, Any]) -> Response[str]:
    """List dead letters, the newest first."""
    state = choice_of(request, "state", LetterState)
    fingerprint, cursor = text_of(request, "fingerprint"), text_of(request, "cursor")
    filters = LetterFilter(
        state=state,
        group=text_of(request, "group"),
        job=text_of(request, "job"),
        manifest=text_of(request, "manifest"),
        fingerprint=fingerprint,
        created_after=moment_of(request, "since"),
        created_before=moment_of(request, "before"),
    )
    async with request.app.state.database.acquire() as connection:
        found = await page_of_letters(connection, filters, cursor=cursor)
        latest = await latest_canary(connection, fingerprint) if fingerprint else None
    return show(
        request,
        "letters.html",
        page=found,
        values=filters_of(request, *_LETTER_FILTERS),
        fingerprint=fingerprint,
        canary=latest,
        cursor=cursor or "",
    )


@post("/dead-letters/change", opt=needs("operator"))
async def change(request: Request[Any, Any, Any]) -> Response[Any]:
    """Retry or acknowledge the checked letters, or all of a failure."""
    action, note = await field_of(request, "action"), await field_of(request, "note")
    ids, whole = await ids_of(request), LetterFilter(fingerprint=await field_of(request, "of"))
    if len(ids) > _MAX_AT_ONCE:
        raise Invalid(f"check at most {_MAX_AT_ONCE} at once, or act on the whole failure")
    if action in ("retry", "acknowledge") and not ids:
        raise Invalid("nothing is checked: check some dead letters first")
    if action in ("retry-all", "acknowledge-all") and not whole.fingerprint:
        raise Invalid("the form names no failure")
    match action:
        case "retry":
            results = await _retry(request, RetryRequest(dead_letters=ids))
        case "acknowledge":
            results = await _acknowledge(request, AcknowledgeRequest(dead_letters=ids, note=note))
        case "retry-all":
            results = await _retry(request, RetryRequest(filter=whole))
        case "acknowledge-all":
            results = await _acknowledge(request, AcknowledgeRequest(filter=whole, note=note))
        case _:
            raise Invalid(f"unknown action {action!r} for dead letters")
    text, kind = summary(results)
    return go_to(request, await back_of(request, "/dead-letters"), text=text, kind=kind)


def summary(results: Sequence[LetterResult]) -> tuple[str, Kind]:
    """Summarise the results of a change."""
    if not results:
        return "No open dead letters left", "bad"
    done = any(result.result in _SUCCESSES for result in results)
    if len(results) == 1:
        return results[0].text or results[0].result, "good" if done else "bad"
    counts = Counter(result.result for result in results)
    parts = ", ".join(f"{many} {_PHRASES.get(kind, kind)}" for kind, many in counts.most_common())
    return f"{len(results)} dead letters: {parts}", "good" if done else "bad"


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


@get("/dead-letters/{letter:uuid}", opt=needs("viewer"))
async def letter_page(request: Request[Any, Any, Any], letter: FromPath[UUID]) -> Response[str]:
    """Show one dead letter."""
    found = await _read(request, letter)
    return _show(request, found, given=pretty(found.input))


@post("/dead-letters/{letter:uuid}/retry", opt=needs("operator"))
async def retry(request: Request[Any, Any, Any], letter: FromPath[UUID]) -> Response[Any]:
    """Run the work again, as it was or with an edited input.

    A refusal shows the form again, with the edited input.
    """
    given = await field_of(request, "input")
    if not given:
        [result] = await _retry(request, RetryRequest(dead_letters=[letter]))
    else:
        found = await _read(request, letter)
        try:
            edited = _decode(given)
            if _is_same(edited, found.input):
                [result] = await _retry(request, RetryRequest(dead_letters=[letter]))
            else:
                await _check(request, found, edited)
                wish = RetryRequest(dead_letters=[letter], input=edited)
                [result] = await _retry(request, wish)
        except RequestFailed as error:
            problem = problem_of(error)
            return _show(request, found, given=given, problem=problem.detail, status=problem.status)
    return _go_to_letter(request, letter, result)


@post("/dead-letters/{letter:uuid}/check", opt=needs("viewer"))
async def check(request: Request[Any, Any, Any], letter: FromPath[UUID]) -> Response[str]:
    """Check an input while it is edited."""
    found = await _read(request, letter)
    try:
        await _check(request, found, _decode(await field_of(request, "input")))
    except _Unfit as error:
        return show(request, "input_check.html", problem=str(error))
    except RequestFailed as error:
        return show(request, "input_check.html", problem=f"cannot check the input: {error}")
    return show(request, "input_check.html", problem="")


@post("/dead-letters/{letter:uuid}/acknowledge", opt=needs("operator"))
async def acknowledge(request: Request[Any, Any, Any], letter: FromPath[UUID]) -> Response[Any]:
    """Acknowledge one dead letter, with a note."""
    note = await field_of(request, "note")
    wish = AcknowledgeRequest(dead_letters=[letter], note=note)
    [result] = await _acknowledge(request, wish)
    return _go_to_letter(request, letter, result)


def _go_to_letter(
    request: Request[Any, Any, Any], letter: UUID, result: LetterResult
) -> Response[Any]:
    kind: Kind = "good" if result.result in _SUCCESSES else "bad"
    return go_to(request, f"/dead-letters/{letter}", text=result.text or result.result, kind=kind)


def _decode(given: str) -> Any:
    try:
        return msgspec.json.decode(given)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _Unfit(f"invalid JSON: {error}") from error


def _is_same(edited: Any, original: Any) -> bool:
    """Compare as JSON, because in Python true equals 1."""
    written = [msgspec.json.encode(value, order="sorted") for value in (edited, original)]
    return written[0] == written[1]


async def _check(request: Request[Any, Any, Any], found: DeadLetterAnswer, value: Any) -> None:
    """Check an input as the dispatcher does before a retry; raises `_Unfit`."""
    letter = found.status
    async with request.app.state.database.acquire() as connection:
        manifest = await manifest_of(connection, letter.dead_letter)
    question = InputQuestion(job=letter.job, input=value, manifest_id=manifest, group=letter.group)
    answer = await ask(request, subjects.INPUT_QUESTION, question, InputAnswer)
    if answer.problem:
        raise _Unfit(answer.problem)


def _show(
    request: Request[Any, Any, Any],
    found: DeadLetterAnswer,
    *,
    given: str,
    problem: str = "",
    status: int = 200,
) -> Response[str]:
    return show(
        request,
        "letter.html",
        status=status,
        letter=found,
        row=found.status,
        given=given,
        problem=problem,
    )


async def _read(request: Request[Any, Any, Any], letter: UUID) -> DeadLetterAnswer:
    async with request.app.state.database.acquire() as connection:
        found = await read_letter(connection, letter)
    if found is None:
        raise NotFound(f"there is no dead letter {letter}: it may have been cleaned up")
    return found


async def _retry(request: Request[Any, Any, Any], wish: RetryRequest) -> list[LetterResult]:
    return await _change_all(request, subjects.RETRY_REQUEST, wish)


async def _acknowledge(
    request: Request[Any, Any, Any], wish: AcknowledgeRequest
) -> list[LetterResult]:
    return await _change_all(request, subjects.ACKNOWLEDGE_REQUEST, wish)


async def _change_all(
    request: Request[Any, Any, Any], subject: str, wish: RetryRequest | AcknowledgeRequest
) -> list[LetterResult]:
    """Change dead letters page after page; those that come meanwhile are left out."""
    results: list[LetterResult] = []
    while True:
        page = await ask(request, subject, wish, LettersChanged, timeout=PATIENT_SECONDS)
        results += page.results
        if not page.more or wish.filter is None:
            return results
        bounded = structs.replace(wish.filter, created_before=page.created_before)
        wish = structs.replace(wish, filter=bounded, after=page.last)


PAGE = Page(
    title="Dead letters",
    path="/dead-letters",
    key="d",
    handlers=(
        *(failures, letters, change, letter_page, retry, check, acknowledge),
        *canary.HANDLERS,
    ),
)
