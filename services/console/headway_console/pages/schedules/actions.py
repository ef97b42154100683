"""Actions on one or many manifests, as requests to the scheduler."""

from collections.abc import Awaitable, Sequence
from datetime import timedelta
from typing import Any, get_args

from headway.client.control import PATIENT_SECONDS
from headway_clock import utc_now
from headway_contract import subjects
from headway_contract.fields import Changed
from headway_contract.manifests import (
    ChangeManyRequest,
    ChangeRequest,
    DeleteRequest,
    ManifestField,
    ManifestResult,
    ManyChanged,
    PauseAnswer,
    PauseRequest,
    ResumeAnswer,
    ResumeRequest,
    TriggerAnswer,
    TriggerRequest,
)
from headway_errors import NotFound, RequestFailed
from litestar import Request, Response, post
from litestar.params import FromPath
from msgspec import UNSET

from headway_console.access.guards import needs
from headway_console.pages.flash import Kind, back_of, go_to, refused
from headway_console.pages.schedules import form as forms
from headway_console.pages.schedules.detail import find, setting_of, show_schedule
from headway_console.services import ask

_MAX_AT_ONCE = 500
_SHOWN = 8


@post("/schedules/bulk", opt=needs("operator"), status_code=303)
async def bulk(request: Request[Any, Any, Any]) -> Response[Any]:
    """Enable, disable, pause, resume or run the checked manifests."""
    sent = await request.form()
    names = [str(name) for name in sent.getall("id", [])]
    back, action = await back_of(request, "/schedules"), str(sent.get("action", ""))
    if not names:
        return go_to(request, back, text="Check some manifests first.", kind="bad")
    if len(names) > _MAX_AT_ONCE:
        return go_to(request, back, text=f"Check at most {_MAX_AT_ONCE} at once.", kind="bad")
    kind: Kind = "good"
    try:
        match action:
            case "pause":
                text = (await _pause(request, PauseRequest(manifests=names))).text
            case "resume":
                text = (await _resume(request, names)).text
            case "enable" | "disable" | "run":
                wish = ChangeManyRequest(manifests=names, action=action)
                text, kind = summary(await _change_many(request, wish))
            case _:
                text, kind = f"Unknown action {action!r}.", "bad"
    except RequestFailed as error:
        return refused(request, back, error)
    return go_to(request, back, text=text, kind=kind)


def summary(results: Sequence[ManifestResult]) -> tuple[str, Kind]:
    """Summarise the results, refusals first."""
    wrong = [f"{result.manifest}: {result.text}" for result in results if not result.done]
    done = [result.text for result in results if result.done]
    lines = [*wrong, *done][:_SHOWN]
    left = len(results) - len(lines)
    lines += [f"… and {left} more"] if left else []
    counts = f"{len(done)} done, {len(wrong)} refused." if wrong else f"{len(done)} done."
    return "\n".join([counts, *lines]), "bad" if wrong else "good"


@post("/schedules/{name:str}/run", opt=needs("operator"))
async def run_now(request: Request[Any, Any, Any], name: FromPath[str]) -> Response[Any]:
    """Run a manifest now, with its input or with the input of the form."""
    sent, here = await request.form(), f"/schedules/{name}"
    given: Any = UNSET
    if sent.get("with") == "input":
        found = await find(request, name)
        empty = forms.made_of(
            found.input_schema, setting_of(found, "input"), takes_input=found.takes_input
        )
        given, filled = forms.read(empty, dict(sent))
        filled = forms.checked(filled, found.input_schema, given, takes_input=found.takes_input)
        if not forms.is_sound(filled):
            return await show_schedule(request, found, form=filled, status=422)
    try:
        wish = TriggerRequest(manifest=name, input=given)
        answer = await ask(request, subjects.TRIGGER_REQUEST, wish, TriggerAnswer)
    except RequestFailed as error:
        return refused(request, here, error)
    return go_to(request, here, text=answer.text)


@post("/schedules/{name:str}/switch", opt=needs("operator"))
async def switch(request: Request[Any, Any, Any], name: FromPath[str]) -> Response[Any]:
    """Enable or disable a manifest."""
    sent = await request.form()
    wish = ChangeRequest(manifest=name, enabled=sent.get("enabled") == "yes")
    return await _changed(request, name, _change(request, wish))


@post("/schedules/{name:str}/pause", opt=needs("operator"))
async def pause(request: Request[Any, Any, Any], name: FromPath[str]) -> Response[Any]:
    """Pause a manifest, for some hours or until resumed."""
    sent, here = await request.form(), f"/schedules/{name}"
    hours = str(sent.get("hours", "")).strip()
    try:
        until = utc_now() + timedelta(hours=float(hours)) if hours else None
    except (ValueError, OverflowError):
        text = f"Invalid number of hours {hours!r}: write 1.5"
        return go_to(request, here, text=text, kind="bad")
    reason = str(sent.get("reason", "")).strip()
    wish = PauseRequest(manifests=[name], until=until, reason=reason)
    return await _changed(request, name, _pause(request, wish))


@post("/schedules/{name:str}/resume", opt=needs("operator"))
async def resume(request: Request[Any, Any, Any], name: FromPath[str]) -> Response[Any]:
    """Resume a manifest."""
    return await _changed(request, name, _resume(request, [name]))


@post("/schedules/{name:str}/change", opt=needs("operator"))
async def change(request: Request[Any, Any, Any], name: FromPath[str]) -> Response[Any]:
    """Override settings of a manifest, or reset one to code."""
    sent, here = await request.form(), f"/schedules/{name}#settings"
    returned: Any = sent.get("give_back")
    if returned in get_args(ManifestField):
        return await _changed(
            request, name, _change(request, ChangeRequest(manifest=name, give_back=[returned]))
        )
    try:
        attempts = int(str(sent.get("attempts", "")))
        interval, jitter = (float(str(sent.get(field, ""))) for field in ("interval", "jitter"))
    except ValueError as error:
        return go_to(request, here, text=f"Invalid number: {error}", kind="bad")
    found = await find(request, name)
    retry = setting_of(found, "retry") or {}
    wanted: dict[str, Any] = {}
    if attempts != retry.get("attempts", 3):
        wanted["attempts"] = attempts
    if interval != retry.get("interval_seconds", 60.0):
        wanted["interval_seconds"] = interval
    if jitter != (setting_of(found, "jitter_seconds") or 0):
        wanted["jitter_seconds"] = jitter
    if not wanted:
        return go_to(request, here, text="Nothing changed: the values are the same.")
    return await _changed(request, name, _change(request, ChangeRequest(manifest=name, **wanted)))


@post("/schedules/{name:str}/delete", opt=needs("admin"))
async def delete(request: Request[Any, Any, Any], name: FromPath[str]) -> Response[Any]:
    """Delete a manifest that no code declares."""
    try:
        wish = DeleteRequest(manifest=name)
        answer = await ask(request, subjects.DELETE_REQUEST, wish, Changed)
    except NotFound as error:
        # Its page no longer exists.
        return refused(request, "/schedules", error)
    except RequestFailed as error:
        return refused(request, f"/schedules/{name}", error)
    return go_to(request, "/schedules", text=answer.text)


async def _pause(request: Request[Any, Any, Any], wish: PauseRequest) -> PauseAnswer:
    return await ask(request, subjects.PAUSE_REQUEST, wish, PauseAnswer, timeout=PATIENT_SECONDS)


async def _resume(request: Request[Any, Any, Any], names: list[str]) -> ResumeAnswer:
    wish = ResumeRequest(manifests=names)
    return await ask(request, subjects.RESUME_REQUEST, wish, ResumeAnswer, timeout=PATIENT_SECONDS)


async def _change(request: Request[Any, Any, Any], wish: ChangeRequest) -> Changed:
    return await ask(request, subjects.CHANGE_REQUEST, wish, Changed)


async def _change_many(
    request: Request[Any, Any, Any], wish: ChangeManyRequest
) -> list[ManifestResult]:
    answer = await ask(
        request, subjects.CHANGE_MANY_REQUEST, wish, ManyChanged, timeout=PATIENT_SECONDS
    )
    return answer.results


async def _changed(
    request: Request[Any, Any, Any],
    name: str,
    request_sent: Awaitable[Changed | PauseAnswer | ResumeAnswer],
) -> Response[Any]:
    here = f"/schedules/{name}"
    try:
        answer = await request_sent
    except RequestFailed as error:
        return refused(request, here, error)
    return go_to(request, here, text=answer.text)


HANDLERS = (bulk, run_now, switch, pause, resume, change, delete)
