"""Plan and apply definitions in YAML."""

from typing import Any, get_args

from headway.define.definitions import InvalidDefinitions
from headway_contract import subjects
from headway_contract.definitions import ApplyAnswer, FireChange, PrunePolicy
from headway_contract.manifests import FireTime
from headway_errors import RequestFailed
from litestar import Response, get, post
from litestar.datastructures import UploadFile
from msgspec import structs

from headway_console.access.guards import needs
from headway_console.api.definitions import YamlRequest, send_file
from headway_console.pages.filters import count
from headway_console.pages.shell import go_to, show
from headway_console.services import HttpRequest

_DAYS = (1, 7, 30, 90)
_SHOWN = 20


@get("/plan", opt=needs("viewer"), sync_to_thread=False)
def plan_page(request: HttpRequest) -> Response[str]:
    """Show the form."""
    return _show(request, YamlRequest(yaml="", prune="keep"))


@post("/plan", opt=needs("viewer"))
async def plan(request: HttpRequest) -> Response[str]:
    """Show what applying the definitions would change."""
    form = await _read(request)
    try:
        answer = await send_file(request, subjects.PLAN_QUESTION, form)
    except (InvalidDefinitions, RequestFailed) as error:
        return _show(request, form, trouble=str(error))
    return _show(request, form, answer=answer)


@post("/plan/apply", opt=needs("admin"))
async def apply(request: HttpRequest) -> Response[Any]:
    """Apply the definitions."""
    form = await _read(request)
    try:
        answer = await send_file(request, subjects.APPLY_REQUEST, structs.replace(form, days=0))
    except (InvalidDefinitions, RequestFailed) as error:
        return _show(request, form, trouble=str(error))
    if answer.stale:
        text = "Nothing changed: a newer generation of these definitions is already in force."
        return go_to(request, "/plan", text=text, kind="bad")
    text = f"Applied {answer.owner}: {summary_of(answer)}."
    return go_to(request, "/plan", text="\n".join([text, *answer.warnings]))


def summary_of(answer: ApplyAnswer) -> str:
    """Count the changes in one line."""
    return (
        f"{len(answer.created)} created, {len(answer.changed)} changed, "
        f"{len(answer.moved)} moved, "
        f"{len(answer.pruned)} deleted, {len(answer.disabled)} disabled, "
        f"{answer.unchanged} unchanged"
    )


def fires_summary(change: FireChange) -> str:
    """Count the fire times of a manifest that change."""
    counts = {"appear": change.appearing, "vanish": change.vanishing, "unchanged": change.unchanged}
    summary = ", ".join(f"{count(number)} {verb}" for verb, number in counts.items() if number)
    return f"at least {summary or 'nothing'}" if change.compared_until else summary


def fire_text(fire: FireTime) -> str:
    """Write a fire time, with its delay by jitter."""
    later = round((fire.fire_at - fire.due_at).total_seconds())
    text = f"{fire.local} (clocks change)" if fire.dst else fire.local
    return f"{text}, {later} s later by jitter" if later else text


async def _read(request: HttpRequest) -> YamlRequest:
    sent = await request.form()
    file, text = sent.get("file"), str(sent.get("text", ""))
    if isinstance(file, UploadFile) and file.filename:
        text = (await file.read()).decode("utf-8-sig", errors="replace")
    prune, days = str(sent.get("prune", "keep")), str(sent.get("days", "7"))
    return YamlRequest(
        yaml=text.replace("\r\n", "\n"),
        prune=prune if prune in get_args(PrunePolicy) else "keep",  # type: ignore[arg-type]
        days=int(days) if days.isdecimal() and int(days) in _DAYS else 7,
        take_over="take_over" in sent,
    )


def _show(
    request: HttpRequest, form: YamlRequest, *, answer: ApplyAnswer | None = None, trouble: str = ""
) -> Response[str]:
    return show(
        request,
        "plan.html",
        status=422 if trouble else 200,
        form=form,
        answer=answer,
        fires_summary=fires_summary,
        fire_text=fire_text,
        shown=_SHOWN,
        summary=summary_of(answer) if answer else "",
        trouble=trouble,
    )
