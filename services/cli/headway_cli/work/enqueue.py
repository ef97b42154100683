"""Commands about work that has no manifest: enqueue it, see what was refused, dismiss that."""

from datetime import datetime
from uuid import UUID

import click
from headway import Client
from headway_clock import utc_now
from headway_contract.scheduling import Changed, EnqueueAnswer, EnqueuedStatus

from headway_cli.terminal import options
from headway_cli.terminal.completion import complete_groups, complete_jobs
from headway_cli.terminal.connect import Reached, asking, json_option, print_json
from headway_cli.terminal.options import read_json
from headway_cli.terminal.tables import print_table
from headway_cli.terminal.times import read_moment, shown
from headway_cli.work import outcomes
from headway_cli.work.outcomes import await_outcome


def _moment(
    context: click.Context,  # noqa: ARG001 - click's interface
    parameter: click.Parameter,  # noqa: ARG001
    given: str | None,
) -> datetime | None:
    return None if given is None else read_moment(given, "UTC", now=utc_now(), ahead=True)


@click.command()
@click.argument("job", metavar="JOB", shell_complete=complete_jobs)
@click.option("--input", "given", metavar="JSON", help="What the job gets.")
@click.option("--group", help="A group other than the job's.", shell_complete=complete_groups)
@click.option("--priority", type=click.IntRange(0, 31), help="From 0 to 31, else the job's.")
@options.seconds_option(
    "--delay", "delay", "Not before so much time has passed.", type=click.FloatRange(min=0)
)
@click.option(
    "--start-by",
    "start_by",
    metavar="TIME",
    callback=_moment,
    help="It expires unless it has begun by then; ISO 8601 or '2027-03-28 03:15', in UTC.",
)
@click.option("--key", help="The same key of a job enqueues only once.")
@outcomes.wait_option
@json_option
@asking
def enqueue(
    reached: Reached,
    job: str,
    given: str | None,
    group: str | None,
    priority: int | None,
    delay: float | None,
    start_by: datetime | None,
    key: str | None,
    waits: bool,
    as_json: bool,
) -> int:
    """Queue work of a job, without a manifest.

    With --wait it says how that ended; with --json, too, it prints the work in full.
    """
    value = None if given is None else read_json(given)

    async def ask(client: Client) -> EnqueueAnswer:
        return await client.enqueue(
            job, value, group=group, priority=priority, delay=delay, start_by=start_by, key=key
        )

    found = reached.ask(ask)
    if not as_json:
        click.echo(found.text)
    elif not waits:
        print_json(found)
    return await_outcome(reached, found.work, as_json=as_json) if waits else 0


@click.command()
@click.option("--refused", "refused_only", is_flag=True, help="Only what was refused.")
@json_option
@asking
def enqueued(reached: Reached, refused_only: bool, as_json: bool) -> None:
    """List enqueued work that waits to be queued, or was refused."""

    async def ask(client: Client) -> list[EnqueuedStatus]:
        return await client.enqueued(refused_only=refused_only)

    found = reached.ask(ask)
    if as_json:
        print_json(found)
    elif not found:
        click.echo("nothing was refused" if refused_only else "nothing waits, nothing was refused")
    else:
        headings = ("WORK", "JOB", "KEY", "BY", "ENQUEUED", "STANDS", "REASON")
        rows = [
            (
                one.work,
                one.job,
                one.key,
                one.enqueued_by,
                shown(one.enqueued_at, "UTC"),
                one.state,
                one.reason,
            )
            for one in found
        ]
        print_table(headings, rows)


@click.command()
@click.argument("work", metavar="WORK", callback=options.identity)
@json_option
@asking
def dismiss(reached: Reached, work: UUID, as_json: bool) -> None:
    """Forget enqueued work that was refused."""

    async def ask(client: Client) -> Changed:
        return await client.dismiss(work)

    done = reached.ask(ask)
    if as_json:
        print_json(done)
    else:
        click.echo(done.text)
