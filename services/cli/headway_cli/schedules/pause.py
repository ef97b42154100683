"""`headway pause`, `headway pauses` and `headway resume`."""

import re
import sys
from collections.abc import Iterator
from typing import Any

import click
from headway_clock import utc_now
from headway_contract.fields import begins_id
from headway_contract.manifests import PauseAnswer, ResumeAnswer

from headway_cli.serve.names import choosing, selecting
from headway_cli.serve.session import Session, command
from headway_cli.terminal import options
from headway_cli.terminal.output import confirm, counted, listed, print_lines, window_table
from headway_cli.terminal.times import age_text, read_moment, shifted, shown

_FIRES_SHOWN = 3
_FROM_A_SECOND = click.FloatRange(1)
_ID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


@command()
@choosing
@options.text("--until", "TIME", "When to resume, by default in UTC; 06:00 is the next.")
@options.seconds_option("--for", "seconds", "Duration, instead of --until.", type=_FROM_A_SECOND)
@click.option("--reason", default="", help="Reason, for the ledger and the audit.")
@options.flag("--dry-run", "Only list the manifests.")
@options.yes_option
def pause(
    session: Session,
    manifest_ids: tuple[str, ...],
    seconds: float | None,
    dry_run: bool,
    yes: bool,
    **terms: Any,
) -> None:
    """Pause manifests for a while.

    The pause lasts until a time, or until 'headway resume'. Pauses stack: a manifest resumes when
    the last pause that covers it has ended. Then its misfire policy decides about the due times
    that passed. Running work continues; manifests that you trigger by name run.

    With --group, --label or --all the pause also covers manifests that are declared later. Then it
    shows the number of manifests and asks for confirmation.
    """
    until, now = terms["until"], utc_now()
    if until is not None and seconds is not None:
        raise click.UsageError("give --until or --for, not both")
    if until is not None:
        terms["until"] = read_moment(until, "UTC", now=now, ahead=True)
    elif seconds is not None:
        terms["until"] = shifted(now, seconds=seconds)

    def send(*, dry_run: bool) -> PauseAnswer:
        return session.ask(lambda client: client.pause(*manifest_ids, dry_run=dry_run, **terms))

    def describe() -> str:
        found = send(dry_run=True)
        names = [paused.manifest for paused in found.manifests]
        until = "until resumed" if terms["until"] is None else f"until {shown(terms['until'])}"
        number = counted(found.count, "manifest")
        return f"pause {number} ({listed(names)}) and those declared later, {until}"

    confirm(describe, yes=yes or dry_run or bool(manifest_ids))
    answer = send(dry_run=dry_run)
    rows = [[row.manifest, row.next_due_at, row.paused_until] for row in answer.manifests]
    lines = window_table(("MANIFEST", "NEXT DUE", "PAUSED UNTIL"), rows)
    session.print(answer, lambda: [*lines, *answer.text.splitlines()])


@command()
def pauses(session: Session) -> None:
    """List the pauses in force."""
    now = utc_now()
    session.print_items(
        session.ask(lambda client: client.pauses()),
        ("PAUSE", "COVERS", "MANIFESTS", "BY", "SINCE", "UNTIL", "LEFT", "REASON"),
        lambda pause: (
            *(pause.id, ", ".join(pause.manifests) or pause.covers, pause.count, pause.by),
            *(pause.since, pause.until or "resumed"),
            *("" if pause.until is None else age_text(now, pause.until), pause.reason),
        ),
        empty="no pause is in force",
    )


@command()
@click.argument("named", metavar="[PAUSE | MANIFEST]...", nargs=-1)
@selecting
@options.flag("--dry-run", "Only show the fires that would follow.")
@options.yes_option
def resume(
    session: Session, named: tuple[str, ...], dry_run: bool, yes: bool, **chosen: Any
) -> None:
    """End pauses, so that their manifests resume.

    Give ids of pauses ('headway pauses' lists them), or their beginnings. Ids of manifests,
    --group, --label or --all end the pause that was made for exactly these: --all ends a pause of
    all manifests, and no pause of some. Other pauses stay in force.

    If missed due times would fire now, it shows them and asks for confirmation.
    """
    ids, manifest_ids = _split(session, named)

    def send(*, dry_run: bool) -> ResumeAnswer:
        return session.ask(
            lambda client: client.resume(*manifest_ids, pauses=ids, dry_run=dry_run, **chosen)
        )

    def describe() -> str | None:
        foreseen = send(dry_run=True)
        if not foreseen.fires:
            return None
        if not sys.stdin.isatty():
            return f"resume them (--dry-run looks first): {foreseen.text}"
        print_lines(_lines(foreseen))
        return "resume them"

    confirm(describe, yes=yes or dry_run)
    answer = send(dry_run=dry_run)
    if yes or dry_run:
        session.print(answer, lambda: _lines(answer))
    else:
        session.print_text(answer)


def _split(session: Session, named: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Tell ids of pauses in force, or their beginnings, from ids of manifests."""
    ids = [name for name in named if _ID.fullmatch(name)]
    if starts := [name for name in named if begins_id(name)]:
        known = [str(pause.id) for pause in session.ask(lambda client: client.pauses())]
        ids += [name for name in starts if any(full.startswith(name.lower()) for full in known)]
    return ids, [name for name in named if name not in ids]


def _lines(answer: ResumeAnswer) -> Iterator[str]:
    rows = []
    for resumed in answer.manifests:
        passed = f"{resumed.passed}{'+' if resumed.passed_or_more else ''}"
        fires: list[object] = [shown(at) for at in resumed.fires[:_FIRES_SHOWN]]
        more = max(0, len(resumed.fires) - _FIRES_SHOWN) + resumed.more_fires
        fires += [f"{more} more"] if more else []
        fires += [f"{resumed.owed} pending"] if resumed.owed else []
        fires += ["its parent's success"] if resumed.follows else []
        rows.append((resumed.manifest, resumed.paused_at, passed, resumed.policy, fires))
    if rows:
        headings = ("MANIFEST", "PAUSED SINCE", "PASSED", "MISFIRE", "FIRES FOR")
        yield from window_table(headings, rows)
    yield from answer.text.splitlines()
