"""Waiting for work to be settled, with what its run tells meanwhile."""

import asyncio
from uuid import UUID

import click
from headway import Client
from headway_clock import monotonic
from headway_contract.dispatching import WorkAnswer
from headway_errors import NotFound, Unavailable

from headway_cli.terminal.connect import Reached, print_json
from headway_cli.terminal.progress import Advance, progressing
from headway_cli.terminal.tables import printable

wait_option = click.option(
    "--wait", "waits", is_flag=True, help="Wait for the outcome; the exit code is 1 if it failed."
)

COMPLETED = "completed"
NOT_COMPLETED = 1
_LOOK_AGAIN_SECONDS = 0.3
_SILENCE_SECONDS = 60.0


def await_outcome(reached: Reached, work: UUID | None, *, as_json: bool) -> int:
    """Wait, tell how it ended, and return the exit code."""
    if work is None:
        click.echo("headway: there is no work yet to wait for; it follows later", err=True)
        return NOT_COMPLETED
    with progressing("waiting", quiet=as_json) as advance:
        found = reached.ask(lambda client: outcome_of(client, work, advance))
    if as_json:
        print_json(found)
    else:
        click.echo(printable(in_words(found)))
    return 0 if found.status.outcome == COMPLETED else NOT_COMPLETED


async def outcome_of(client: Client, work: UUID, advance: Advance) -> WorkAnswer:
    """The work once it is settled.

    That the dispatcher does not know it yet is no fault, and neither is one that starts again.
    """
    heard_at = monotonic()
    while True:
        try:
            found = await client.work(work)
        except NotFound:
            heard_at = monotonic()
            advance(0, now="on its way")
        except Unavailable:
            if monotonic() - heard_at > _SILENCE_SECONDS:
                raise
            advance(0, now="nobody answers; trying again")
        else:
            heard_at = monotonic()
            if found.status.state == "settled":
                return found
            await _tell(client, found, advance)
        await asyncio.sleep(_LOOK_AGAIN_SECONDS)


async def _tell(client: Client, found: WorkAnswer, advance: Advance) -> None:
    status = found.status
    if status.run is None or status.state != "dispatched":
        why = (status.wait_reason or "").replace("_", " ")
        advance(0, now=f"{status.state}{f' ({why})' if why else ''}")
        return
    run = await client.run(status.run)
    words = run.message or run.status.state.replace("_", " ")
    advance(run.percent or 0, of=None if run.percent is None else 100, now=words)


def in_words(found: WorkAnswer) -> str:
    """How work ended, in a line."""
    status = found.status
    last = found.runs[-1] if found.runs else None
    why = ""
    if status.outcome != COMPLETED and last is not None and last.failure_kind:
        why = f": {last.failure_kind}: {(last.failure_message or '').partition(chr(10))[0]}"
    took = ""
    if last is not None and last.started_at is not None and last.finished_at is not None:
        took = f" after {(last.finished_at - last.started_at).total_seconds():.3f} s"
    return f"work {status.work}: {(status.outcome or '').replace('_', ' ')}{took}{why}"
