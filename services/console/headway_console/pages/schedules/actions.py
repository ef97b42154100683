"""Actions on one or many manifests, as requests to the scheduler."""

from datetime import timedelta
from typing import Any, get_args

from headway_clock import utc_now
from headway_contract import manifests as contract
from headway_contract import subjects
from headway_contract.fields import Changed
from headway_errors import NotFound, RequestFailed
from litestar import Response, post
from litestar.params import FromPath
from msgspec import UNSET

from headway_console.access.guards import needs
from headway_console.pages import form_fields as fields
from headway_console.pages.schedules import form as forms
from headway_console.pages.schedules.detail import form_of, setting_of, show_schedule
from headway_console.pages.shell import Kind, back_of, go_to, go_to_result
from headway_console.reading.manifests import read_manifest
from headway_console.services import HttpRequest, ask, read

_SHOWN = 8


@post("/schedules/bulk", opt=needs("operator"), status_code=303)
async def bulk(request: HttpRequest) -> Response[Any]:
    """Enable, disable, pause, resume or run the checked manifests."""
    sent = await request.form()
    names = [str(name) for name in sent.getall("id", [])]
    back, action = await back_of(request, "/schedules"), str(sent.get("action", ""))
    if not 0 < len(names) <= fields.MAX_AT_ONCE:
        text = f"Check some manifests first, at most {fields.MAX_AT_ONCE}."
        return go_to(request, back, text=text, kind="bad")
    match action:
        case "pause":
            pausing = _pause(request, contract.PauseRequest(manifests=names))
            return await go_to_result(request, back, pausing)
        case "resume":
            return await go_to_result(request, back, _resume(request, names))
        case "enable" | "disable" | "run":
            message = contract.ChangeManyRequest(manifests=names, action=action)
            subject = subjects.CHANGE_MANY_REQUEST
            changing = ask(request, subject, message, contract.ManyChanged, slow=True)
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
    counts = f"{len(done)} done, {len(wrong)} refused." if wrong else f"{len(done)} done."
    return "\n".join([counts, *lines]), "bad" if wrong else "good"


@post("/schedules/{name:str}/run", opt=needs("operator"))
async def run_now(request: HttpRequest, name: FromPath[str]) -> Response[Any]:
    """Run a manifest now, with its input or with the input of the form."""
    sent = await request.form()
    given: Any = UNSET
    if sent.get("with") == "input":
        found = await read(request, read_manifest, name)
        given, filled = forms.read_form(form_of(found), dict(sent))
        filled = forms.check_form(filled, found.input_schema, given, takes_input=found.takes_input)
        if not forms.is_sound(filled):
            return await show_schedule(request, found, form=filled, status=422)
    message = contract.TriggerRequest(manifest=name, input=given)
    result = ask(request, subjects.TRIGGER_REQUEST, message, contract.TriggerAnswer)
    return await go_to_result(request, f"/schedules/{name}", result)


@post("/schedules/{name:str}/switch", opt=needs("operator"))
async def switch(request: HttpRequest, name: FromPath[str]) -> Response[Any]:
    """Enable or disable a manifest."""
    return await _change(request, name, enabled=await fields.field_of(request, "enabled") == "yes")


@post("/schedules/{name:str}/pause", opt=needs("operator"))
async def pause(request: HttpRequest, name: FromPath[str]) -> Response[Any]:
    """Pause a manifest, for some hours or until resumed."""
    here, hours = f"/schedules/{name}", await fields.field_of(request, "hours")
    try:
        until = utc_now() + timedelta(hours=float(hours)) if hours else None
    except (ValueError, OverflowError):
        text = f"Invalid number of hours {hours!r}: write 1.5"
        return go_to(request, here, text=text, kind="bad")
    reason = await fields.field_of(request, "reason")
    message = contract.PauseRequest(manifests=[name], until=until, reason=reason)
    return await go_to_result(request, here, _pause(request, message))


@post("/schedules/{name:str}/resume", opt=needs("operator"))
async def resume(request: HttpRequest, name: FromPath[str]) -> Response[Any]:
    """Resume a manifest."""
    return await go_to_result(request, f"/schedules/{name}", _resume(request, [name]))


@post("/schedules/{name:str}/change", opt=needs("operator"))
async def change(request: HttpRequest, name: FromPath[str]) -> Response[Any]:
    """Override settings of a manifest, or reset one to code."""
    sent, here = await request.form(), f"/schedules/{name}#settings"
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


@post("/schedules/{name:str}/delete", opt=needs("admin"))
async def delete(request: HttpRequest, name: FromPath[str]) -> Response[Any]:
    """Delete a manifest that no code declares."""
    try:
        message = contract.DeleteRequest(manifest=name)
        answer = await ask(request, subjects.DELETE_REQUEST, message, Changed)
    except RequestFailed as error:
        # A manifest that is not found has no page either.
        to = "/schedules" if isinstance(error, NotFound) else f"/schedules/{name}"
        return go_to(request, to, text=str(error), kind="bad")
    return go_to(request, "/schedules", text=answer.text)


async def _pause(request: HttpRequest, message: contract.PauseRequest) -> contract.PauseAnswer:
    return await ask(request, subjects.PAUSE_REQUEST, message, contract.PauseAnswer, slow=True)


async def _resume(request: HttpRequest, names: list[str]) -> contract.ResumeAnswer:
    message = contract.ResumeRequest(manifests=names)
    return await ask(request, subjects.RESUME_REQUEST, message, contract.ResumeAnswer, slow=True)


async def _change(request: HttpRequest, name: str, **changes: Any) -> Response[Any]:
    message = contract.ChangeRequest(manifest=name, **changes)
    result = ask(request, subjects.CHANGE_REQUEST, message, Changed)
    return await go_to_result(request, f"/schedules/{name}", result)


HANDLERS = (bulk, run_now, switch, pause, resume, change, delete)
