"""Plan and apply definitions in YAML."""

from typing import Any, get_args

from headway.client.control import PATIENT_SECONDS
from headway.define.definitions import Definitions, InvalidDefinitions
from headway.define.packing import pack
from headway.yaml_file import load_yaml
from headway_contract import subjects
from headway_contract.definitions import ApplyAnswer, ApplyRequest, FireChange, PrunePolicy
from headway_contract.manifests import FireTime
from headway_errors import RequestFailed
from litestar import Request, Response, get, post
from litestar.datastructures import UploadFile
from msgspec import Struct

from headway_console.access.guards import needs
from headway_console.pages.filters import count
from headway_console.pages.flash import go_to
from headway_console.pages.shell import Page, show
from headway_console.services import ask

PRUNES: tuple[str, ...] = get_args(PrunePolicy)
_DAYS = (1, 7, 30, 90)
_SHOWN = 20


class PlanForm(Struct, frozen=True, kw_only=True):
    """The definitions in the form, and the options."""

    text: str = ""
    prune: PrunePolicy = "keep"
    days: int = 7
    take_over: bool = False


class FireChangeView(Struct, frozen=True, kw_only=True):
    """The fire times of one manifest that change, as the page shows them."""

    change: FireChange
    summary: str
    appear: list[str]
    vanish: list[str]
    hidden: int


@get("/plan", opt=needs("viewer"), sync_to_thread=False)
def plan_page(request: Request[Any, Any, Any]) -> Response[str]:
    """Show the form."""
    return _show(request, PlanForm())


@post("/plan", opt=needs("viewer"))
async def plan(request: Request[Any, Any, Any]) -> Response[str]:
    """Show what applying the definitions would change."""
    form = await _read(request)
    try:
        answer = await _ask(request, subjects.PLAN_QUESTION, form, days=form.days)
    except (InvalidDefinitions, RequestFailed) as error:
        return _show(request, form, trouble=str(error))
    return _show(request, form, answer=answer)


@post("/plan/apply", opt=needs("admin"))
async def apply(request: Request[Any, Any, Any]) -> Response[Any]:
    """Apply the definitions."""
    form = await _read(request)
    try:
        answer = await _ask(request, subjects.APPLY_REQUEST, form)
    except (InvalidDefinitions, RequestFailed) as error:
        return _show(request, form, trouble=str(error))
    if answer.stale:
        text = "Nothing changed: a newer generation of these definitions is already in force."
        return go_to(request, "/plan", text=text, kind="bad")
    text = f"Applied {answer.owner}: {summary_of(answer)}."
    return go_to(request, "/plan", text="\n".join([text, *answer.warnings]))


async def _ask(
    request: Request[Any, Any, Any], subject: str, form: PlanForm, *, days: int = 0
) -> ApplyAnswer:
    wish = ApplyRequest(
        definitions=pack(definitions_of(form.text)),
        prune=form.prune,
        days=days,
        take_over=form.take_over,
    )
    return await ask(request, subject, wish, ApplyAnswer, timeout=PATIENT_SECONDS)


def definitions_of(text: str) -> Definitions:
    """Parse definitions; the line break keeps the text from being read as a path."""
    return load_yaml(f"{text}\n")


def summary_of(answer: ApplyAnswer) -> str:
    """Count the changes in one line."""
    return (
        f"{len(answer.created)} created, {len(answer.changed)} changed, "
        f"{len(answer.pruned)} deleted, {len(answer.disabled)} disabled, "
        f"{answer.unchanged} unchanged"
    )


def view_of(change: FireChange) -> FireChangeView:
    """Return the first changes of a manifest, and how many are hidden."""
    counts = {
        "appear": change.appearing,
        "vanish": change.vanishing,
        "unchanged": change.unchanged,
    }
    summary = ", ".join(f"{count(number)} {verb}" for verb, number in counts.items() if number)
    appear = [_listed(fire) for fire in change.appear[:_SHOWN]]
    vanish = [_listed(fire) for fire in change.vanish[:_SHOWN]]
    return FireChangeView(
        change=change,
        summary=f"at least {summary or 'nothing'}" if change.compared_until else summary,
        appear=appear,
        vanish=vanish,
        hidden=change.vanishing + change.appearing - len(appear) - len(vanish),
    )


def _listed(fire: FireTime) -> str:
    later = round((fire.fire_at - fire.due_at).total_seconds())
    return f"{_text(fire)}, {later} s later by jitter" if later else _text(fire)


def _text(fire: FireTime) -> str:
    return f"{fire.local} (clocks change)" if fire.dst else fire.local


async def _read(request: Request[Any, Any, Any]) -> PlanForm:
    sent = await request.form()
    file, text = sent.get("file"), str(sent.get("text", ""))
    if isinstance(file, UploadFile) and file.filename:
        text = (await file.read()).decode("utf-8-sig", errors="replace")
    prune, days = str(sent.get("prune", "keep")), str(sent.get("days", "7"))
    return PlanForm(
        text=text.replace("\r\n", "\n"),
        prune=prune if prune in PRUNES else "keep",  # type: ignore[arg-type]
        days=int(days) if days.isdecimal() and int(days) in _DAYS else 7,
        take_over="take_over" in sent,
    )


def _show(
    request: Request[Any, Any, Any],
    form: PlanForm,
    *,
    answer: ApplyAnswer | None = None,
    trouble: str = "",
) -> Response[str]:
    return show(
        request,
        "plan.html",
        status=422 if trouble else 200,
        form=form,
        answer=answer,
        fire_changes=[view_of(change) for change in answer.fires] if answer else [],
        summary=summary_of(answer) if answer else "",
        trouble=trouble,
        prunes=PRUNES,
        days=_DAYS,
    )


PAGE = Page(title="Plan", path="/plan", handlers=(plan_page, plan, apply), key="p")
