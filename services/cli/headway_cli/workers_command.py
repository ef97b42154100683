"""Workers: who lives, who drains, and what they run."""

import click
from headway_clock import utc_now
from headway_contract.dispatching import WorkerStatus

from headway_cli import ages
from headway_cli.asking import Reached, asking, json_option, print_json
from headway_cli.tables import print_table


@click.command()
@json_option
@asking
def workers(reached: Reached, as_json: bool) -> None:
    """List workers: who lives, who drains, and what they run."""
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
