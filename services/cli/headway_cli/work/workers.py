"""`headway workers`: list workers, or drain some."""

import click
from headway_clock import utc_now
from headway_contract.operations import WorkerStatus

from headway_cli.serve.completion import complete_workers
from headway_cli.serve.session import Session, asking, command
from headway_cli.terminal.times import age_text

UNKNOWN_WORKER = 1


@click.group(invoke_without_command=True)
@asking
@click.pass_context
def workers(context: click.Context, session: Session) -> None:
    """List workers, or drain some."""
    if context.invoked_subcommand is None:
        session.print_items(
            session.ask(lambda client: client.workers()),
            ("WORKER", "STATUS", "BUSY", "HOST", "VERSION", "JOBS", "LAST HEARTBEAT"),
            _row,
            empty="no worker has sent a heartbeat: start one with 'headway worker'",
        )


@command("drain", of=workers)
@click.argument(
    "names", metavar="NAME...", nargs=-1, required=True, shell_complete=complete_workers
)
def _drain_command(session: Session, names: tuple[str, ...]) -> int:
    """Drain workers: they take no new orders, finish their runs, and exit.

    A worker that starts later under the same name is not affected. The exit code is 1 if a worker
    is unknown.
    """
    found = session.ask(lambda headway: headway.drain(*names))
    session.print(found, lambda: [result.text for result in found])
    return UNKNOWN_WORKER if any(result.result == "unknown" for result in found) else 0


def _row(worker: WorkerStatus) -> tuple[object, ...]:
    state = "silent" if not worker.alive else "draining" if worker.draining else "alive"
    version = worker.code_version or f"{worker.sdk} {worker.sdk_version}".strip()
    heard = f"{age_text(worker.last_heard_at, utc_now())} ago"
    busy = f"{len(worker.runs)} of {worker.slots}"
    return (worker.worker, state, busy, worker.host, version, ", ".join(worker.jobs), heard)
