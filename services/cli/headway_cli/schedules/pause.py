"""`headway pause` and `headway resume`: maintenance windows."""

import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import click
from headway_clock import utc_now
from headway_contract.manifests import ResumeAnswer, ResumedManifest

from headway_cli.serve.names import choosing
from headway_cli.serve.session import Session, command
from headway_cli.terminal import options
from headway_cli.terminal.interaction import confirm, yes_option
from headway_cli.terminal.output import print_lines, window_table
from headway_cli.terminal.times import read_moment, shown

_FIRES_SHOWN = 3


@command()
@choosing
@click.option(
    "--until",
    metavar="TIME",
    help="When to resume, in UTC unless it has an offset; 06:00 is the next.",
)
@options.seconds_option(
    "--for", "seconds", "Duration, instead of --until.", type=click.FloatRange(1)
)
@click.option("--reason", default="", help="Reason, for the ledger and the audit.")
@click.option("--dry-run", is_flag=True, help="Only list the manifests.")
def pause(
    session: Session,
    manifest_ids: tuple[str, ...],
    until: str | None,
    seconds: float | None,
    **terms: Any,
) -> None:
    """Pause manifests for a while.

    The pause lasts until a time, or until 'headway resume'. When it ends, the misfire policy of
    each manifest decides about the due times that passed. Running work continues; manifests that
    you trigger by name run.
    """
    ends_at = _read_end(until, seconds)
    answer = session.ask(lambda client: client.pause(*manifest_ids, until=ends_at, **terms))
    if not session.as_json:
        rows = [[paused.manifest, shown(paused.next_due_at)] for paused in answer.manifests]
        print_lines(window_table(("MANIFEST", "NEXT DUE"), rows))
    session.print_text(answer)


@command()
@choosing
@click.option("--dry-run", is_flag=True, help="Only show what would fire.")
@yes_option
def resume(
    session: Session,
    manifest_ids: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    **chosen: Any,
) -> None:
    """Resume paused manifests.

    If missed due times would fire now, it shows them and asks for confirmation.
    """

    def send(*, dry_run: bool) -> ResumeAnswer:
        return session.ask(lambda client: client.resume(*manifest_ids, dry_run=dry_run, **chosen))

    confirm(lambda: _describe_fires(send(dry_run=True)), yes=yes or dry_run)
    answer = send(dry_run=dry_run)
    if yes or dry_run:
        session.print(answer, lambda: _lines(answer))
    else:
        session.print_text(answer)


def _describe_fires(foreseen: ResumeAnswer) -> str | None:
    """Describe what would fire, at a terminal in full; `None` if nothing does."""
    if not foreseen.fires:
        return None
    if sys.stdin.isatty():
        print_lines(_lines(foreseen))
        return "resume them"
    return f"resume them (--dry-run looks first): {foreseen.text}"


def _lines(answer: ResumeAnswer) -> Iterator[str]:
    rows = [
        (
            resumed.manifest,
            shown(resumed.paused_at),
            f"{resumed.passed}{'+' if resumed.passed_or_more else ''}",
            resumed.policy,
            _fires(resumed),
        )
        for resumed in answer.manifests
    ]
    if rows:
        yield from window_table(
            ("MANIFEST", "PAUSED SINCE", "PASSED", "MISFIRE", "FIRES FOR"), rows
        )
    yield from answer.text.splitlines()


def _fires(resumed: ResumedManifest) -> str:
    parts = [shown(at) for at in resumed.fires[:_FIRES_SHOWN]]
    rest = max(0, len(resumed.fires) - _FIRES_SHOWN) + resumed.more_fires
    parts += [f"{rest} more"] if rest else []
    parts += [f"{resumed.owed} pending"] if resumed.owed else []
    parts += ["its parent's success"] if resumed.follows else []
    return ", ".join(parts) or "-"


def _read_end(text: str | None, seconds: float | None) -> datetime | None:
    if text is not None and seconds is not None:
        raise click.UsageError("give --until or --for, not both")
    now = utc_now()
    if seconds is not None:
        return now + timedelta(seconds=seconds)
    return None if text is None else read_moment(text, "UTC", now=now, ahead=True)
