"""An input that a person edits as JSON, checked while they type as the services check it."""

from typing import Any

from headway_contract import subjects
from headway_contract.work_queue import InputAnswer, InputQuestion
from headway_errors import Invalid, RequestFailed
from litestar import Response, post
from msgspec import DecodeError
from msgspec.json import decode

from headway_console.access.guards import needs
from headway_console.pages import form_fields as fields
from headway_console.pages.shell import show
from headway_console.services import HttpRequest, ask

INPUT_KEPT = "The manifest's own input is unchanged."


def decode_input(given: str) -> Any:
    """Read an input; raises `Invalid`."""
    try:
        return decode(given)
    except (DecodeError, RecursionError) as error:
        raise Invalid(f"invalid JSON: {error}") from error


@post("/inputs/check", opt=needs("viewer"))
async def check(request: HttpRequest) -> Response[str]:
    """Say whether a job accepts the input of a form, with the concurrency key of its manifest."""
    sent = {name: await fields.field_of(request, name) for name in ("job", "group", "manifest_id")}
    try:
        question = InputQuestion(
            job=sent["job"],
            group=sent["group"] or None,
            manifest_id=fields.id_of(sent["manifest_id"], "id") if sent["manifest_id"] else None,
            input=decode_input(await fields.field_of(request, "input")),
        )
        answer = await ask(request, subjects.INPUT_QUESTION, question, InputAnswer)
        problem = answer.problem
    except Invalid as error:
        problem = str(error)
    except RequestFailed as error:
        problem = f"cannot check the input: {error}"
    return show(request, "input_check.html", problem=problem)
