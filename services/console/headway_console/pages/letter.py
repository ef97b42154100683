"""One dead letter: what failed, in which attempts, on which input; edit and retry."""

from typing import Any
from uuid import UUID

import msgspec
from headway.client.client import Client
from headway_contract import subjects
from headway_contract.dispatching import DeadLetterAnswer
from headway_contract.scheduling import InputAnswer, InputQuestion
from headway_errors import Invalid, NotFound, RequestFailed
from litestar import Request, Response, get, post
from litestar.params import FromPath

from headway_console.access.guards import needs
from headway_console.pages.filters import pretty
from headway_console.pages.flash import go_to
from headway_console.pages.form_fields import field_of
from headway_console.pages.shell import show
from headway_console.problems import problem_of
from headway_console.reading.dead_letters import manifest_of, read_letter


class _Unfit(Invalid):
    """An input that the job would not take, or that makes no concurrency key."""


@get("/dead-letters/{letter:uuid}", opt=needs("viewer"))
async def letter_page(request: Request[Any, Any, Any], letter: FromPath[UUID]) -> Response[str]:
    """One dead letter in full."""
    found = await _read(request, letter)
    return _show(request, found, given=pretty(found.input))


@post("/dead-letters/{letter:uuid}/retry", opt=needs("operator"))
async def retry(request: Request[Any, Any, Any], letter: FromPath[UUID]) -> Response[Any]:
    """Run its work again: as it was, or with the input that was edited.

    Whatever speaks against it is told beside what was written, which is not lost.
    """
    client = Client(control=request.app.state.control, actor=request.user.name)
    given = await field_of(request, "input")
    if not given:
        [result] = await client.retry(letter)
    else:
        found = await _read(request, letter)
        try:
            edited = _decoded(given)
            if _alike(edited, found.input):
                [result] = await client.retry(letter)
            else:
                await _check(request, found, edited)
                [result] = await client.retry(letter, input=edited)
        except RequestFailed as error:
            told = problem_of(error)
            return _show(request, found, given=given, problem=told.detail, status=told.status)
    done = result.result in ("retried", "waits")
    return go_to(
        request,
        f"/dead-letters/{letter}",
        text=result.text or result.result,
        kind="good" if done else "bad",
    )


@post("/dead-letters/{letter:uuid}/check", opt=needs("viewer"))
async def check(request: Request[Any, Any, Any], letter: FromPath[UUID]) -> Response[str]:
    """Whether its work could have an input; for the editor, while somebody writes."""
    found = await _read(request, letter)
    try:
        await _check(request, found, _decoded(await field_of(request, "input")))
    except _Unfit as error:
        return show(request, "input_check.html", problem=str(error))
    except RequestFailed as error:
        return show(request, "input_check.html", problem=f"it cannot be checked: {error}")
    return show(request, "input_check.html", problem="")


@post("/dead-letters/{letter:uuid}/acknowledge", opt=needs("operator"))
async def acknowledge(request: Request[Any, Any, Any], letter: FromPath[UUID]) -> Response[Any]:
    """Put it away, with a note."""
    client = Client(control=request.app.state.control, actor=request.user.name)
    [result] = await client.acknowledge(letter, note=await field_of(request, "note"))
    done = result.result == "acknowledged"
    text = result.text or result.result
    return go_to(request, f"/dead-letters/{letter}", text=text, kind="good" if done else "bad")


def _decoded(given: str) -> Any:
    """The input that somebody wrote."""
    try:
        return msgspec.json.decode(given)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _Unfit(f"this is no JSON: {error}") from error


def _alike(one: Any, other: Any) -> bool:
    """Whether two inputs are the same JSON; in Python, true would be the same as 1."""
    written = [msgspec.json.encode(each, order="sorted") for each in (one, other)]
    return written[0] == written[1]


async def _check(request: Request[Any, Any, Any], found: DeadLetterAnswer, value: Any) -> None:
    """Ask what the dispatcher asks before it retries; raises `_Unfit` with what is wrong."""
    letter = found.status
    async with request.app.state.database.acquire() as connection:
        manifest = await manifest_of(connection, letter.dead_letter)
    question = InputQuestion(job=letter.job, input=value, manifest_id=manifest, group=letter.group)
    answer: InputAnswer = await request.app.state.control.ask(
        subjects.INPUT_QUESTION, question, InputAnswer
    )
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
        told=found.status,
        given=given,
        problem=problem,
    )


async def _read(request: Request[Any, Any, Any], letter: UUID) -> DeadLetterAnswer:
    async with request.app.state.database.acquire() as connection:
        found = await read_letter(connection, letter)
    if found is None:
        raise NotFound(f"there is no dead letter {letter}: it may have been cleaned up")
    return found


HANDLERS = (letter_page, retry, check, acknowledge)
