"""`headway failing`: jobs by the share of their runs that fail."""

from datetime import datetime
from typing import Any

import click
from headway_clock import utc_now

from headway_cli.serve.session import Session, command
from headway_cli.terminal import options
from headway_cli.terminal.output import first_line
from headway_cli.terminal.times import MOMENT_HELP, age_text, read_past


@command()
@click.option(
    *("--since", "since"),
    metavar="AGE|TIME",
    callback=read_past,
    default="24h",
    show_default=True,
    help=f"Count runs that ended since then. {MOMENT_HELP}",
)
@options.count_option("How many to list.", most=500, usual=50)
def failing(session: Session, since: datetime, most: int) -> None:
    """List the jobs that fail, by the share of failed runs.

    Each attempt counts as a run. A job with open dead letters is listed too if none of its runs
    failed since then.
    """
    now = utc_now()
    session.print_items(
        session.read_list("/failing", {"since": since}, most=most),
        ("JOB", "RATE", "FAILED", "RUNS", "DEAD LETTERS", "LAST FAILURE", "RUN", "ERROR"),
        lambda job: _row(job, now),
        empty="no job has failed since then, and there are no open dead letters",
    )


def _row(job: dict[str, Any], now: datetime) -> tuple[object, ...]:
    last = job["last_at"] and f"{age_text(datetime.fromisoformat(job['last_at']), now)} ago"
    error = f"{job['failure_kind']}: {job['failure_message']}" if job["failure_kind"] else ""
    rate = "-" if job["rate"] is None else f"{100 * job['rate']:.3g} %"
    counts = (job["failed"], job["runs"], job["dead_letters"])
    return (job["job"], rate, *counts, last, job["last_run"], first_line(error, 200))
