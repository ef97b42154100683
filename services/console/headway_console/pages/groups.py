"""Groups: limits, active runs, and waiting work."""

from typing import Any

from headway_contract import subjects
from headway_contract.fields import Changed
from headway_contract.operations import ChangeGroupRequest
from headway_decisions.capacity.rates import rate_in_words
from headway_errors import NotFound, RequestFailed, Unavailable
from litestar import Response, get, post
from litestar.params import FromPath

from headway_console.access.guards import needs
from headway_console.pages import form_fields as fields
from headway_console.pages.jobs import AMONG_OF_LIST, SHOWN, SHOWN_RUNS
from headway_console.pages.shell import back_of, go_to, go_to_result, show, show_list
from headway_console.pages.work_queue import waits_for
from headway_console.reading.applications import list_jobs_of_group, read_job_figures
from headway_console.reading.groups import GroupRow, page_of_groups
from headway_console.reading.manifests import ManifestFilter, page_of_manifests
from headway_console.reading.runs import RunFilter, page_of_runs
from headway_console.reading.works import WorkFilter, page_of_works
from headway_console.services import HttpRequest, ask, read

_FIELDS = ("max_active", "priority", "enabled", "rate")


@get("/groups", opt=needs("viewer"))
async def groups(request: HttpRequest) -> Response[str]:
    """List groups."""
    return await show_list(
        request, "groups.html", page_of_groups, rate_of=rate_of, waits_for=waits_for
    )


@get("/groups/{name:str}", opt=needs("viewer"))
async def group(request: HttpRequest, name: FromPath[str]) -> Response[str]:
    """Show one group."""
    page = await read(request, page_of_groups, name=name)
    if not page.items:
        raise NotFound(f"there is no group {name!r}: declaring a job in it creates it")
    jobs = await read(request, list_jobs_of_group, name)
    failed = RunFilter(group=name, state="failed")
    return show(
        request,
        "group.html",
        group=page.items[0],
        rate_of=rate_of,
        jobs=jobs,
        figures=await read(request, read_job_figures, jobs, among=AMONG_OF_LIST),
        among=AMONG_OF_LIST,
        manifests=await read(request, page_of_manifests, ManifestFilter(group=name), limit=SHOWN),
        works=(await read(request, page_of_works, WorkFilter(group=name), limit=SHOWN_RUNS)).items,
        failures=(await read(request, page_of_runs, failed, limit=SHOWN_RUNS)).items,
        waits_for=waits_for,
    )


@post("/groups/bulk", opt=needs("operator"))
async def bulk(request: HttpRequest) -> Response[Any]:
    """Enable or disable the checked groups."""
    sent, back = await request.form(), await back_of(request, "/groups")
    enabled = sent.get("action") == "enable"
    done, wrong = 0, []
    for name in map(str, sent.getall("id", [])):
        try:
            await _change(request, name, enabled=enabled)
            done += 1
        except Unavailable as error:  # the others would fail too
            return go_to(request, back, text=str(error), kind="bad")
        except RequestFailed as error:
            wrong.append(f"{name}: {error}")
    noun, word = "group" if done == 1 else "groups", "enabled" if enabled else "disabled"
    text = "\n".join([f"{done} {noun} {word}.", *wrong])
    return go_to(request, back, text=text, kind="bad" if wrong else "good")


@post("/groups/{name:str}/change", opt=needs("operator"))
async def change(request: HttpRequest, name: FromPath[str]) -> Response[Any]:
    """Change the limits of a group, or reset one to code."""
    sent, here = await request.form(), f"/groups/{name}"
    returned = sent.get("give_back")
    if returned in _FIELDS:
        return await go_to_result(request, here, _change(request, name, give_back=[returned]))
    try:
        given = {**fields.limits_of(sent), "priority": int(str(sent.get("priority", "0")))}
    except ValueError as error:
        return go_to(request, here, text=f"Nothing changed: {error}", kind="bad")
    rows = (await read(request, page_of_groups, name=name)).items
    wanted = {
        field: value
        for field, value in given.items()
        if not rows or value != getattr(rows[0], field)
    }
    if not wanted:
        return go_to(request, here, text="Nothing changed: the values are the same.", kind="bad")
    return await go_to_result(request, here, _change(request, name, **wanted))


async def _change(request: HttpRequest, name: str, **fields: Any) -> Changed:
    message = ChangeGroupRequest(group=name, **fields)
    return await ask(request, subjects.CHANGE_GROUP_REQUEST, message, Changed)


def rate_of(row: GroupRow) -> str:
    """Write the rate of a group; empty without one."""
    return rate_in_words(row.rate) if row.rate else ""
