"""Runs: the list, and one run with the other attempts of its work."""

from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from headway_clock import utc_now
from headway_contract import subjects
from headway_contract.manifests import TriggerAnswer, TriggerRequest
from headway_contract.work_queue import EnqueueAnswer, EnqueueRequest
from headway_tracing import traceparent
from litestar import Response, get, post
from litestar.params import FromPath
from litestar.response import ServerSentEvent
from msgspec import Struct

from headway_console.access.guards import needs
from headway_console.pages import form_fields as fields
from headway_console.pages.filters import words
from headway_console.pages.live import watch
from headway_console.pages.manifests.actions import trigger_summary
from headway_console.pages.shell import go_to, show, show_list
from headway_console.pages.waterfall import steps_of
from headway_console.pages.work_queue import unknown_manifest
from headway_console.reading.runs import (
    RunDetails,
    RunFilter,
    page_of_runs,
    read_run,
    read_run_changes,
)
from headway_console.services import HttpRequest, ask, read
from headway_console.settings import ConsoleSettings


class FollowUp(Struct, frozen=True, kw_only=True):
    """The continuation of a run: a text with a link, its time or state, and a note."""

    text: str
    link: str = ""
    at: datetime | None = None
    state: str = ""
    note: str = ""


@get("/runs", opt=needs("viewer"))
async def runs(request: HttpRequest) -> Response[str]:
    """List runs, the newest first."""
    filters = fields.read_filters(request, RunFilter)
    unknown = await unknown_manifest(request, filters.manifest)
    return await show_list(
        request, "runs.html", page_of_runs, filters=filters, unknown_manifest=unknown
    )


@get("/runs/{run:uuid}", opt=needs("viewer"))
async def run_page(request: HttpRequest, run: FromPath[UUID]) -> Response[str]:
    """Show one run."""
    found = await read(request, read_run, run)
    under_way = found.status.finished_at is None
    return show(
        request,
        "run.html",
        run=found,
        row=found.status,
        under_way=under_way,
        follows=what_follows(found),
        steps=steps_of(found, now=utc_now()),
        moves=under_way or found.work_state != "settled",
        trace=trace_link(request.app.state.settings, found.trace_id),
    )


@get("/runs/{run:uuid}/live", opt=needs("viewer"), sync_to_thread=False)
def run_live(request: HttpRequest, run: FromPath[UUID]) -> ServerSentEvent:
    """Send an event when the run changes, its progress and log included."""
    return watch(request, partial(read_run_changes, run=run))


@post("/runs/{run:uuid}/again", opt=needs("operator"))
async def run_again(request: HttpRequest, run: FromPath[UUID]) -> Response[Any]:
    """Run the manifest again with the same input, or the job if there is no manifest."""
    found = await read(request, read_run, run)
    row = found.status
    if row.manifest is not None:
        message = TriggerRequest(manifest=row.manifest, input=found.input)
        triggered = await ask(request, subjects.TRIGGER_REQUEST, message, TriggerAnswer)
        (text, kind), work = trigger_summary(triggered), triggered.work
    else:
        order = EnqueueRequest(
            job=row.job, input=found.input, group=row.group, traceparent=traceparent()
        )
        enqueued = await ask(request, subjects.ENQUEUE_REQUEST, order, EnqueueAnswer)
        text, kind, work = f"Queued as work {enqueued.work}", "good", enqueued.work
    to = f"/runs/{run}" if work is None else f"/work/{work}"
    return go_to(request, to, text=text, kind=kind)


def what_follows(run: RunDetails) -> FollowUp | None:
    """Describe what comes after a run that ended; `None` if nothing does."""
    row = run.status
    if row.finished_at is None:
        return None
    for attempt in run.attempts:
        if attempt.created_at > row.created_at:
            text = f"Attempt {attempt.attempt} followed"
            if attempt.round > row.round:
                text = f"Round {attempt.round} followed, after a retry of the dead letter"
            return FollowUp(text=text, link=f"/runs/{attempt.run}", state=attempt.state)
    if run.dead_letter and run.letter_round == row.round and row.state == "failed":
        is_open = run.letter_state == "awaiting"
        blocks = is_open and row.manifest and run.on_dead_letter == "block"
        return FollowUp(
            text="It became a dead letter",
            link=f"/dead-letters/{run.dead_letter}",
            state="" if is_open else run.letter_state or "",
            note="The manifest does not fire until it is resolved." if blocks else "",
        )
    if run.work_state in ("waiting", "queued"):
        number = row.attempt + 1 if row.state == "failed" else row.attempt
        attempts = run.retry.get("attempts")
        of_all = f" of {attempts}" if attempts else ""
        return FollowUp(
            text=f"Attempt {number}{of_all} is next",
            link=f"/work/{row.work}",
            at=run.not_before,
            note=f"It waits: {words(run.wait_reason)}." if run.wait_reason else "",
        )
    return None


def trace_link(settings: ConsoleSettings, trace_id: str | None) -> str | None:
    """Return the URL of a trace in Jaeger, or `None` without a trace or a Jaeger URL."""
    if not settings.jaeger_url or not trace_id:
        return None
    return f"{settings.jaeger_url.rstrip('/')}/trace/{trace_id}"
