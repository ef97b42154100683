"""Maintenance windows: pause manifests, and see what will be made good before they go on."""

import sys
from datetime import datetime, timedelta
from typing import Any

import click
from headway import Client
from headway_clock import utc_now
from headway_contract.pausing import PauseAnswer, ResumeAnswer, ResumedManifest

from headway_cli.schedules.selection import choosing
from headway_cli.terminal import options
from headway_cli.terminal.confirm import confirm, yes_option
from headway_cli.terminal.connect import Reached, asking, json_option, print_json
from headway_cli.terminal.tables import print_table
from headway_cli.terminal.times import read_moment, shown

_FIRES_SHOWN = 3


@click.command()
@choosing
@click.option(
    "--until",
    metavar="TIME",
    help="When to go on, in UTC unless it has an offset; 06:00 is the next.",
)
@options.seconds_option(
    "--for", "seconds", "For how long, in place of --until.", type=click.FloatRange(1)
)
@click.option("--reason", default="", help="What for; the ledger and the audit keep it.")
@click.option("--dry-run", is_flag=True, help="Only say which manifests are meant.")
@json_option
@asking
def pause(
    reached: Reached,
    manifest_ids: tuple[str, ...],
    until: str | None,
    seconds: float | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Let nothing of some manifests begin for a while.

    That is until a time, or until 'headway resume'. What comes due meanwhile is decided when the
    pause ends, by each manifest's misfire policy. What runs goes on to its end; what somebody
    triggers by name runs.
    """
    ends_at = _until(until, seconds)

    async def ask(client: Client) -> PauseAnswer:
        return await client.pause(*manifest_ids, until=ends_at, **given)

    answer = reached.ask(ask)
    if as_json:
        print_json(answer)
        return
    rows = [[one.manifest, shown(one.next_due_at, "UTC")] for one in answer.manifests]
    print_table(("MANIFEST", "NEXT DUE"), rows)
    click.echo(answer.text)


@click.command()
@choosing
@click.option("--dry-run", is_flag=True, help="Only say what would be made good.")
@yes_option
@json_option
@asking
def resume(
    reached: Reached,
    manifest_ids: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Let paused manifests go on.

    First it says what they make good of what came due meanwhile, and asks if that is wanted.
    """

    def answered(*, dry: bool) -> ResumeAnswer:
        async def ask(client: Client) -> ResumeAnswer:
            return await client.resume(*manifest_ids, dry_run=dry, **chosen)

        return reached.ask(ask)

    confirm(lambda: _made_good(answered(dry=True)), yes=yes or dry_run)
    answer = answered(dry=dry_run)
    if as_json:
        print_json(answer)
    elif yes or dry_run:
        _show(answer)
    else:
        click.echo(answer.text)


def _made_good(foreseen: ResumeAnswer) -> str | None:
    """What would fire; none if nothing does. Somebody at a terminal sees it in full."""
    if not foreseen.fires:
        return None
    if sys.stdin.isatty():
        _show(foreseen)
        return "resume them"
    return f"resume them (--dry-run looks first): {foreseen.text}"


def _show(answer: ResumeAnswer) -> None:
    rows = [
        [
            one.manifest,
            shown(one.paused_at, "UTC"),
            f"{one.passed}{'+' if one.passed_or_more else ''}",
            one.policy,
            _fires(one),
        ]
        for one in answer.manifests
    ]
    if rows:
        print_table(("MANIFEST", "PAUSED SINCE", "PASSED", "MISFIRE", "FIRES FOR"), rows)
    click.echo(answer.text)


def _fires(one: ResumedManifest) -> str:
    said = [shown(at, "UTC") for at in one.fires[:_FIRES_SHOWN]]
    rest = max(0, len(one.fires) - _FIRES_SHOWN) + one.more_fires
    said += [f"{rest} more"] if rest else []
    said += [f"{one.owed} that waited"] if one.owed else []
    said += ["its parent's success"] if one.follows else []
    return ", ".join(said) or "-"


def _until(given: str | None, seconds: float | None) -> datetime | None:
    if given is not None and seconds is not None:
        raise click.UsageError("give --until or --for, not both")
    now = utc_now()
    if seconds is not None:
        return now + timedelta(seconds=seconds)
    return None if given is None else read_moment(given, "UTC", now=now, ahead=True)
