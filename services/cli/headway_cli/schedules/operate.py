"""`headway trigger`, `headway pause` and `headway resume`."""

import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import click
from headway import Client
from headway_clock import utc_now
from headway_contract.manifests import BackfillAnswer, ResumeAnswer, ResumedManifest
from msgspec import UNSET

from headway_cli.schedules.change import change_many
from headway_cli.serve.names import check_choice, choosing
from headway_cli.serve.outcomes import await_outcome, wait_option
from headway_cli.serve.session import Session, command
from headway_cli.terminal import options
from headway_cli.terminal.interaction import confirm, yes_option
from headway_cli.terminal.output import counted, print_lines, window_table
from headway_cli.terminal.times import read_moment, shown


@command()
@choosing
@click.option("--input", "input_text", metavar="JSON", help="Input instead of the manifest's own.")
@options.seconds_option("--delay", "delay", "Do not start before this time has passed.")
@options.priority_option
@options.seconds_option(
    "--start-within",
    "start_within",
    "The work expires if it has not started by then.",
    type=click.FloatRange(min=0, min_open=True),
)
@click.option("--key", help="Idempotency key: the same key triggers only once.")
@click.option(
    "--from", "since", metavar="TIME", help="Backfill: queue the occurrences of a past range."
)
@click.option("--to", "until", metavar="TIME", help="End of that range; by default now.")
@click.option("--missed-only", is_flag=True, help="Only occurrences that did not fire on schedule.")
@wait_option
@yes_option
def trigger(
    session: Session,
    manifest_ids: tuple[str, ...],
    group: str | None,
    labels: dict[str, str],
    everything: bool,
    input_text: str | None,
    since: str | None,
    until: str | None,
    missed_only: bool,
    waits: bool,
    yes: bool,
    **terms: Any,
) -> int:
    """Run manifests now, in addition to their schedules.

    With --from it queues each occurrence of a past range once, after it showed their number and
    asked for confirmation. Times without an offset are in the manifest's zone.

    With --wait it prints the outcome of the run; with --json as well, the work in full. For
    several manifests it shows their number and asks for confirmation.
    """
    chosen = {"group": group, "labels": labels, "everything": everything}
    check_choice(manifest_ids, **chosen)
    key = terms["key"]
    single = {"input": input_text, **terms, "key": None, "wait": waits}
    if len(manifest_ids) != 1:
        _refuse_terms(
            "only for a single manifest",
            {**single, "from": since, "to": until, "missed_only": missed_only},
        )
        change_many(session, "run", chosen, manifest_ids, key=key, yes=yes)
        return 0
    [manifest_id] = manifest_ids
    if since is not None:
        _refuse_terms(
            "not for a backfill, which takes only --priority",
            {**single, "priority": None, "key": key},
        )
        backfill = {"missed_only": missed_only, "priority": terms["priority"]}
        _backfill(session, manifest_id, since, until, backfill, yes=yes)
        return 0
    if until is not None or missed_only:
        raise click.UsageError("--to and --missed-only need --from, where the range begins")
    value = UNSET if input_text is None else options.read_json(input_text)
    terms["delay"] = terms["delay"] or 0.0
    found = session.ask(lambda client: client.trigger(manifest_id, input=value, **terms))
    if not (session.as_json and waits and found.work is not None):
        session.print_text(found)
    return await_outcome(session, found.work) if waits else 0


def _refuse_terms(why: str, terms: dict[str, object]) -> None:
    """Refuse options that have no meaning for several manifests, or for a range."""
    stated = [f"--{name.replace('_', '-')}" for name, value in terms.items() if value]
    if stated:
        raise click.UsageError(f"{', '.join(stated)}: {why}")


def _backfill(
    session: Session,
    manifest_id: str,
    since: str,
    until: str | None,
    terms: dict[str, Any],
    *,
    yes: bool,
) -> None:
    """Ask for confirmation with the number of occurrences, then queue them."""

    def send(*, dry_run: bool) -> BackfillAnswer:
        async def ask(client: Client) -> BackfillAnswer:
            zone, now = (await client.manifest(manifest_id)).status.zone, utc_now()
            return await client.backfill(
                manifest_id,
                since=read_moment(since, zone, now=now, past=True),
                until=now if until is None else read_moment(until, zone, now=now, past=True),
                dry_run=dry_run,
                **terms,
            )

        return session.ask(ask)

    def describe() -> str | None:
        found = send(dry_run=True)
        if not found.queued:
            return None
        return f"queue {counted(found.queued, 'occurrence')} ({found.text})"

    confirm(describe, yes=yes)
    session.print_text(send(dry_run=False))


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
