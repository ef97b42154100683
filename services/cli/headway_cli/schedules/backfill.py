"""`trigger --from --to`: the occurrences of a past range, counted before they are queued."""

from typing import Any

import click
from headway import Client
from headway_clock import utc_now
from headway_contract.scheduling import BackfillAnswer

from headway_cli.terminal.confirm import confirm
from headway_cli.terminal.connect import Reached, print_json
from headway_cli.terminal.times import read_moment
from headway_cli.up.summary import counted


def backfill_range(
    reached: Reached,
    manifest_id: str,
    ends: tuple[str, str | None],
    terms: dict[str, Any],
    *,
    yes: bool,
    as_json: bool,
) -> None:
    """Show how many occurrences are meant, ask, and queue them."""

    def send(*, dry_run: bool) -> BackfillAnswer:
        async def ask(client: Client) -> BackfillAnswer:
            zone, now = (await client.manifest(manifest_id)).status.zone, utc_now()
            since, until = ends
            return await client.backfill(
                manifest_id,
                since=read_moment(since, zone, now=now, past=True),
                until=now if until is None else read_moment(until, zone, now=now, past=True),
                dry_run=dry_run,
                **terms,
            )

        return reached.ask(ask)

    def meant() -> str | None:
        found = send(dry_run=True)
        if not found.queued:
            return None
        return f"queue {counted(found.queued, 'occurrence')} ({found.text})"

    confirm(meant, yes=yes)
    done = send(dry_run=False)
    if as_json:
        print_json(done)
    else:
        click.echo(done.text)
