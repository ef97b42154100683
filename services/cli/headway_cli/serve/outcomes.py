"""`--wait`: wait until work is settled, and show the progress of its run."""

import asyncio
from uuid import UUID

import click
from headway import Client
from headway_clock import monotonic
from headway_contract.work_queue import WorkAnswer
from headway_errors import NotFound, Unavailable

from headway_cli.serve.session import Session
from headway_cli.terminal.interaction import Advance, progressing
from headway_cli.terminal.output import first_line
from headway_cli.terminal.times import duration_text

wait_option = click.option(
    "--wait", "waits", is_flag=True, help="Wait for the outcome; the exit code is 1 if it failed."
)

NOT_COMPLETED = 1
_POLL_SECONDS = 0.3
_SILENCE_SECONDS = 60.0


def await_outcome(session: Session, work: UUID | None) -> int:
    """Wait, print the outcome, and return the exit code."""
    if work is None:
        click.echo("headway: there is no work to wait for yet; it is queued later", err=True)
        return NOT_COMPLETED
    with progressing("waiting", quiet=session.as_json) as advance:
        found = session.ask(lambda client: _wait_until_settled(client, work, advance))
    text = f"work {work}: {(found.status.outcome or '').replace('_', ' ')}"
    completed = found.status.outcome == "completed"
    for run in found.runs[-1:]:
        if run.started_at is not None and run.finished_at is not None:
            text += f" after {duration_text(run.started_at, run.finished_at)}"
        if not completed and run.failure_kind:
            text += f": {run.failure_kind}: {first_line(run.failure_message or '', 1000)}"
    session.print(found, lambda: [text])
    return 0 if completed else NOT_COMPLETED


async def _wait_until_settled(client: Client, work: UUID, advance: Advance) -> WorkAnswer:
    """Return the work once it is settled; tolerates a dispatcher that restarts."""
    answered_at = monotonic()
    while True:
        try:
            found = await client.work(work)
            status = found.status
            if status.state == "settled":
                return found
            if status.run is None or status.state != "dispatched":
                reason = (status.wait_reason or "").replace("_", " ")
                advance(0, now=f"{status.state}{f' ({reason})' if reason else ''}")
            else:
                run = await client.run(status.run)
                step = run.message or run.status.state.replace("_", " ")
                advance(run.percent or 0, of=None if run.percent is None else 100, now=step)
            answered_at = monotonic()
        except NotFound:
            answered_at = monotonic()
            advance(0, now="on its way")
        except Unavailable:
            if monotonic() - answered_at > _SILENCE_SECONDS:
                raise
            advance(0, now="no answer; trying again")
        await asyncio.sleep(_POLL_SECONDS)
