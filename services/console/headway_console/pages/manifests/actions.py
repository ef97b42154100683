"""Actions on one or many manifests, as requests to the scheduler."""

from typing import Any, get_args

from headway_contract import manifests as contract
from headway_contract import subjects
from headway_contract.fields import Changed
from headway_errors import NotFound, RequestFailed
from litestar import Response, post
from litestar.params import FromPath

from headway_console.access.guards import needs
from headway_console.pages import form_fields as fields
from headway_console.pages.inputs import INPUT_KEPT, decode_input
from headway_console.pages.manifests.detail import setting_of, show_manifest
from headway_console.pages.pauses import send_pause
from headway_console.pages.shell import Kind, back_of, go_to, go_to_result
from headway_console.reading.manifests import read_manifest
from headway_console.services import HttpRequest, ask, read

_SHOWN = 8


@post("/manifests/bulk", opt=needs("operator"), status_code=303)
async def bulk(request: HttpRequest) -> Response[Any]:
    """Enable, disable, pause, resume or run the checked manifests."""
    sent = await request.form()
    names = [str(name) for name in sent.getall("id", [])]
    back, action = await back_of(request, "/manifests"), str(sent.get("action", ""))
    if not 0 < len(names) <= fields.MAX_AT_ONCE:
        text = f"Select some manifests first, at most {fields.MAX_AT_ONCE}."
        return go_to(request, back, text=text, kind="bad")
    match action:
        case "pause":
            return await send_pause(request, back, manifests=names)
        case "resume":
            resume, answer = contract.ResumeRequest(manifests=names), contract.ResumeAnswer
            resumed = ask(request, subjects.RESUME_REQUEST, resume, answer)
            return await go_to_result(request, back, resumed)
        case "enable" | "disable" | "run":
            message = contract.ChangeManyRequest(manifests=names, action=action)
            subject = subjects.CHANGE_MANY_REQUEST
            changing = ask(request, subject, message, contract.ManyChanged)
            return await go_to_result(request, back, changing, summary)
        case _:
            return go_to(request, back, text=f"Unknown action {action!r}.", kind="bad")


def summary(answer: contract.ManyChanged) -> tuple[str, Kind]:
    """Summarise the results, refusals first."""
    wrong = [f"{result.manifest}: {result.text}" for result in answer.results if not result.done]
    done = [result.text for result in answer.results if result.done]
    lines = [*wrong, *done][:_SHOWN]
    left = len(answer.results) - len(lines)
    lines += [f"… and {left} more"] if left else []
    if len(answer.results) == 1:
        return answer.results[0].text, "bad" if wrong else "good"
    counts = f"{len(done)} done, {len(wrong)} refused." if wrong else f"{len(done)} done."
    return "\n".join([counts, *lines]), "bad" if wrong else "good"


@post("/manifests/{name:str}/run", opt=needs("operator"))
async def run_now(request: HttpRequest, name: FromPath[str]) -> Response[Any]:
    """Run a manifest now, with its input or with that of the form, which a refusal shows again."""
    here, given = f"/manifests/{name}", await fields.field_of(request, "input")
    if not given:
        return await go_to_result(request, here, _trigger(request, name), trigger_summary)
    try:
        answer = await _trigger(request, name, input=decode_input(given))
    except RequestFailed as error:
        found = await read(request, read_manifest, name)
        return await show_manifest(request, found, given=given, problem=str(error))
    text, kind = trigger_summary(answer)
    return go_to(request, here, text=f"{text}\n{INPUT_KEPT}", kind=kind)


def trigger_summary(answer: contract.TriggerAnswer) -> tuple[str, Kind]:
    """Describe the result of a trigger; a service that refuses it raises `RequestFailed`."""
    return answer.text or answer.result, "good"


async def _trigger(request: HttpRequest, name: str, **terms: Any) -> contract.TriggerAnswer:
    message = contract.TriggerRequest(manifest=name, **terms)
    return await ask(request, subjects.TRIGGER_REQUEST, message, contract.TriggerAnswer)


@post("/manifests/{name:str}/change", opt=needs("operator"))
async def change(request: HttpRequest, name: FromPath[str]) -> Response[Any]:
    """Override settings of a manifest, or reset one to code."""
    sent, here = await request.form(), f"/manifests/{name}#settings"
    returned = sent.get("give_back")
    if returned in get_args(contract.ManifestField):
        return await _change(request, name, give_back=[returned])
    try:
        given = {
            "attempts": int(str(sent.get("attempts", ""))),
            "interval_seconds": float(str(sent.get("interval", ""))),
            "jitter_seconds": float(str(sent.get("jitter", ""))),
        }
    except ValueError as error:
        return go_to(request, here, text=f"Invalid number: {error}", kind="bad")
    found = await read(request, read_manifest, name)
    current = {"attempts": 3, "interval_seconds": 60.0, **(setting_of(found, "retry") or {})}
    current["jitter_seconds"] = setting_of(found, "jitter_seconds") or 0
    wanted = {field: value for field, value in given.items() if value != current[field]}
    if not wanted:
        return go_to(request, here, text="Nothing changed: the values are the same.")
    return await _change(request, name, **wanted)


@post("/manifests/{name:str}/delete", opt=needs("admin"))
async def delete(request: HttpRequest, name: FromPath[str]) -> Response[Any]:
    """Delete a manifest that no code declares."""
    try:
        message = contract.DeleteRequest(manifest=name)
        answer = await ask(request, subjects.DELETE_REQUEST, message, Changed)
    except RequestFailed as error:
        # A manifest that is not found has no page either.
        to = "/manifests" if isinstance(error, NotFound) else f"/manifests/{name}"
        return go_to(request, to, text=str(error), kind="bad")
    return go_to(request, "/manifests", text=answer.text)


async def _change(request: HttpRequest, name: str, **changes: Any) -> Response[Any]:
    message = contract.ChangeRequest(manifest=name, **changes)
    result = ask(request, subjects.CHANGE_REQUEST, message, Changed)
    return await go_to_result(request, f"/manifests/{name}", result)
