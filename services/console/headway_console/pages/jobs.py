"""Jobs: their manifests, runs, figures and workers."""

from datetime import datetime, timedelta
from functools import partial
from typing import Any

from headway_clock import utc_now
from headway_contract import subjects
from headway_contract.fields import Changed, Rate
from headway_contract.operations import ChangeJobRequest
from headway_decisions.capacity.rates import rate_in_words
from headway_errors import NotFound
from litestar import Response, get, post
from litestar.params import FromPath
from msgspec import convert

from headway_console.access.guards import needs
from headway_console.pages import form_fields as fields
from headway_console.pages.shell import go_to, go_to_result, show, show_list
from headway_console.reading.applications import JobRow, page_of_jobs, read_job_figures
from headway_console.reading.manifests import ManifestFilter, page_of_manifests
from headway_console.reading.runs import RunFilter, page_of_runs
from headway_console.reading.system import page_of_workers
from headway_console.services import HttpRequest, ask, read

# Number of the latest runs behind the figures, of each job of a list and of one job.
AMONG_OF_LIST, _AMONG = 100, 1000
SHOWN, SHOWN_RUNS = 20, 10


def heard_since(request: HttpRequest) -> datetime:
    """Return the time since which a live worker was heard."""
    return utc_now() - timedelta(seconds=request.app.state.settings.orphan_timeout_seconds)


@get("/jobs", opt=needs("viewer"))
async def jobs(request: HttpRequest) -> Response[str]:
    """List jobs with figures of their latest runs."""
    text = fields.text_of(request, "text")
    read_page = partial(page_of_jobs, heard_since=heard_since(request), text=text)
    page = await read(request, read_page, cursor=fields.text_of(request, "cursor"))
    names = [job.name for job in page.items]
    figures = await read(request, read_job_figures, names, among=AMONG_OF_LIST)
    return await show_list(
        request, "jobs.html", read_page, "text", figures=figures, among=AMONG_OF_LIST
    )


@get("/jobs/{name:str}", opt=needs("viewer"))
async def job(request: HttpRequest, name: FromPath[str]) -> Response[str]:
    """Show one job."""
    since = heard_since(request)
    found = await _find(request, name)
    workers = await read(request, page_of_workers, heard_since=since, alive_only=True, job=name)
    manifests = await read(request, page_of_manifests, ManifestFilter(job=name), limit=SHOWN)
    return show(
        request,
        "job.html",
        job=found,
        rate=rate_in_words(rate) if (rate := rate_of(found)) else "",
        figures=(await read(request, read_job_figures, [name], among=_AMONG))[name],
        manifests=manifests,
        runs=(await read(request, page_of_runs, RunFilter(job=name), limit=SHOWN_RUNS)).items,
        workers=workers.items,
    )


@post("/jobs/{name:str}/change", opt=needs("operator"))
async def change(request: HttpRequest, name: FromPath[str]) -> Response[Any]:
    """Change the limits of a job, or reset one to code."""
    sent, here = await request.form(), f"/jobs/{name}"
    if returned := sent.get("give_back"):
        message = convert({"job": name, "give_back": [returned]}, ChangeJobRequest)
        return await go_to_result(request, here, _change(request, message))
    try:
        given = fields.limits_of(sent)
    except ValueError as error:
        return go_to(request, here, text=f"Nothing changed: {error}", kind="bad")
    found = await _find(request, name)
    in_force = {"max_active": found.max_active, "rate": rate_of(found)}
    wanted = {field: value for field, value in given.items() if value != in_force[field]}
    if not wanted:
        return go_to(request, here, text="Nothing changed: the values are the same.", kind="bad")
    message = ChangeJobRequest(job=name, **wanted)
    return await go_to_result(request, here, _change(request, message))


async def _change(request: HttpRequest, message: ChangeJobRequest) -> Changed:
    return await ask(request, subjects.CHANGE_JOB_REQUEST, message, Changed)


def rate_of(row: JobRow) -> Rate | None:
    """Return the rate limit of a job."""
    return convert(row.rate, Rate | None)


async def _find(request: HttpRequest, name: str) -> JobRow:
    page = await read(request, page_of_jobs, heard_since=heard_since(request), name=name)
    if not page.items:
        raise NotFound(f"there is no job {name!r}: see the list of jobs")
    return page.items[0]
