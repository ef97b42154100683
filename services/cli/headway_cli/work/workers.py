"""Workers: who lives, who drains, and what they run."""

import click
from headway_clock import utc_now
from headway_contract.dispatching import WorkerStatus

from headway_cli.terminal import ages
from headway_cli.terminal.completion import complete_workers
from headway_cli.terminal.connect import Reached, asking, json_option, print_json, print_lines
from headway_cli.terminal.tables import print_table
from headway_cli.work.dead_letters import NOT_ALL


@click.group(invoke_without_command=True)
@json_option
@asking
@click.pass_context
def workers(context: click.Context, reached: Reached, as_json: bool) -> None:
    """List workers: who lives, who drains, and what they run."""
    if context.invoked_subcommand is None:
        _list_workers(reached, as_json=as_json)


@workers.command("drain")
@click.argument(
    "names", metavar="NAME...", nargs=-1, required=True, shell_complete=complete_workers
)
@json_option
@asking
def _drain_command(reached: Reached, names: tuple[str, ...], as_json: bool) -> int:
    """Let workers take no more orders, finish what they run, and end.

    Whoever starts again under such a name is not meant. The exit code is 1 if one of them is not
    known.
    """
    found = reached.ask(lambda headway: headway.drain(*names))
    if as_json:
        print_json(found)
    else:
        print_lines([one.text for one in found])
    return NOT_ALL if any(one.result == "unknown" for one in found) else 0


def _list_workers(reached: Reached, *, as_json: bool) -> None:
    found = reached.ask(lambda client: client.workers())
    if as_json:
        print_json(found)
    elif not found:
        click.echo("no worker has been heard: start one with 'headway worker'")
    else:
        headings = ("WORKER", "STANDS", "BUSY", "HOST", "VERSION", "JOBS", "HEARD")
        print_table(headings, [_worker_row(one) for one in found])


def _worker_row(one: WorkerStatus) -> tuple[object, ...]:
    stands = "silent" if not one.alive else "draining" if one.draining else "alive"
    version = one.code_version or f"{one.sdk} {one.sdk_version}".strip()
    heard = f"{ages.told(one.last_heard_at, utc_now())} ago"
    busy = f"{len(one.runs)} of {one.slots}"
    return (one.worker, stands, busy, one.host, version, ", ".join(one.jobs), heard)
