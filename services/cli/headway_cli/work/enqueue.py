"""Commands about work that has no manifest: enqueue it, list it, dismiss refused work."""

from typing import Any
from uuid import UUID

import click
from headway_clock import utc_now

from headway_cli.serve.names import complete_groups, complete_jobs
from headway_cli.serve.outcomes import await_outcome, wait_option
from headway_cli.serve.session import Session, command
from headway_cli.terminal import options
from headway_cli.terminal.times import read_moment


@command()
@click.argument("job", metavar="JOB", shell_complete=complete_jobs)
@click.option("--input", "input_text", metavar="JSON", help="Input of the job.")
@click.option("--group", help="A group other than the job's.", shell_complete=complete_groups)
@options.priority_option
@options.seconds_option("--delay", "delay", "Do not start before this time has passed.")
@options.text("--start-by", "TIME", "The work expires if it has not started by then, in UTC.")
@click.option("--key", help="Idempotency key: the same key of a job enqueues only once.")
@wait_option
def enqueue(
    session: Session,
    job: str,
    input_text: str | None,
    start_by: str | None,
    waits: bool,
    **terms: Any,
) -> int:
    """Queue work of a job, without a manifest.

    With --wait it prints the outcome; with --json as well, the work in full.
    """
    value = None if input_text is None else options.read_json(input_text)
    if start_by is not None:
        terms["start_by"] = read_moment(start_by, "UTC", now=utc_now(), ahead=True)
    found = session.ask(lambda client: client.enqueue(job, value, **terms))
    if not (session.as_json and waits):
        session.print_text(found)
    return await_outcome(session, found.work) if waits else 0


@command()
@options.flag("--refused", "Only refused work.", "refused_only")
def enqueued(session: Session, refused_only: bool) -> None:
    """List enqueued work that is not queued yet or was refused."""
    session.print_items(
        session.ask(lambda client: client.enqueued(refused_only=refused_only)),
        ("WORK", "JOB", "KEY", "BY", "ENQUEUED", "STATUS", "REASON"),
        lambda work: (
            *(work.work, work.job, work.key, work.enqueued_by, work.enqueued_at),
            *(work.state, work.reason),
        ),
        empty="no work was refused" if refused_only else "no work is pending, none was refused",
    )


@command()
@click.argument("work", metavar="WORK", callback=options.identity)
def dismiss(session: Session, work: UUID) -> None:
    """Dismiss enqueued work that was refused."""
    session.print_text(session.ask(lambda client: client.dismiss(work)))
