"""`headway jobs`: what is declared, how it is limited, and who serves it."""

from datetime import datetime
from typing import Any

import click
import msgspec
from headway_contract.routes import API
from headway_contract.work import Rate
from headway_decisions.capacity.rates import rate_in_words
from msgspec import Struct

from headway_cli.terminal.connect import Reached, asking, json_option, print_json
from headway_cli.terminal.tables import print_table

_HEADINGS = (
    "JOB",
    "MAX ACTIVE",
    "IN USE",
    "RATE",
    "ATTEMPTS",
    "WORKERS",
    "MANIFESTS",
    "OPERATOR'S",
)


class JobStatus(Struct, frozen=True, kw_only=True):
    """A job in the list of the API, as far as it is shown here."""

    name: str
    max_active: int | None = None
    rate: Rate | None = None
    attempts: int | None = None
    active: int = 0
    manifests: int = 0
    workers: int = 0
    touched: list[str] = []
    retired_at: datetime | None = None


@click.command()
@json_option
@asking
def jobs(reached: Reached, as_json: bool) -> None:
    """List jobs: their limits, what is in use, who serves them."""
    found = reached.listed(f"{API}/jobs")
    if as_json:
        print_json(found)
    elif not found:
        click.echo("no jobs are declared: start an app with 'headway scheduler --app APP'")
    else:
        print_table(_HEADINGS, [_row(msgspec.convert(one, JobStatus)) for one in found])


def _row(one: JobStatus) -> tuple[Any, ...]:
    return (
        one.name if one.retired_at is None else f"{one.name} (retired)",
        "no limit" if one.max_active is None else one.max_active,
        one.active,
        "no limit" if one.rate is None else rate_in_words(one.rate),
        one.attempts,
        one.workers or "none alive",
        one.manifests,
        ", ".join(one.touched),
    )
