"""`headway trigger`, `headway pause` and `headway resume`."""

import sys
from collections.abc import Iterator
from typing import Any

import click
from headway import Client
from headway_clock import utc_now
from headway_contract.manifests import BackfillAnswer, ResumeAnswer
from msgspec import UNSET

from headway_cli.schedules.change import change_many
from headway_cli.serve.names import check_choice, choosing
from headway_cli.serve.session import Session, await_outcome, command, wait_option
from headway_cli.terminal import options
from headway_cli.terminal.output import confirm, counted, print_lines, window_table
from headway_cli.terminal.times import read_moment, shifted, shown

_EXPIRY = "The work expires if it has not started by then."
_FIRES_SHOWN = 3
_FROM_A_SECOND = click.FloatRange(1)


@command()
@choosing
@click.option("--input", "input_text", metavar="JSON", help="Input instead of the manifest's own.")
@options.seconds_option("--delay", "delay", "Do not start before this time has passed.")
@options.priority_option
@options.seconds_option("--start-within", "start_within", _EXPIRY, type=options.POSITIVE)
@click.option("--key", help="Idempotency key: the same key triggers only once.")
@click.option("--from", "since", metavar="TIME", help="Backfill: queue the occurrences since then.")
@click.option("--to", "until", metavar="TIME", help="End of that range; by default now.")
@options.flag("--missed-only", "Only occurrences that did not fire on schedule.")
@wait_option
@options.yes_option
def trigger(
    session: Session,
    manifest_ids: tuple[str, ...],
    input_text: str | None,
    since: str | None,
    until: str | None,
    missed_only: bool,
    waits: bool,
    yes: bool,
    **terms: Any,
) -> int:
    """Run manifests now, in addition to their schedules.

    If work of a manifest runs, its overlap policy decides: it may refuse, and then nothing runs.

    With --from it shows the number of occurrences in a past range, asks for confirmation, and
    queues each once. Times without an offset are in the manifest's zone.

    With --wait it prints the outcome of the run; with --json as well, the work in full. For
    several manifests it shows their number and asks for confirmation.
    """
    chosen = {name: terms.pop(name) for name in ("group", "labels", "everything")}
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
        _backfill(session, manifest_id, since, until, yes=yes, **backfill)
        return 0
    if until is not None or missed_only:
        raise click.UsageError("--to and --missed-only need --from, where the range begins")
    value = UNSET if input_text is None else options.read_json(input_text)
    terms["delay"] = terms["delay"] or 0.0
    found = session.ask(lambda client: client.trigger(manifest_id, input=value, **terms))
    if not (session.as_json and waits and found.work is not None):
        session.print_text(found)
    return await_outcome(session, found.work) if waits else 0


def _backfill(
    session: Session, manifest_id: str, since: str, until: str | None, *, yes: bool, **terms: Any
) -> None:
    """Ask for confirmation with the number of occurrences, then queue them."""

    async def send(client: Client, *, dry_run: bool) -> BackfillAnswer:
        zone, now = (await client.manifest(manifest_id)).status.zone, utc_now()
        first = read_moment(since, zone, now=now, past=True)
        last = now if until is None else read_moment(until, zone, now=now, past=True)
        return await client.backfill(manifest_id, since=first, until=last, dry_run=dry_run, **terms)

    def describe() -> str | None:
        found = session.ask(lambda client: send(client, dry_run=True))
        number = counted(found.queued, "occurrence")
        return f"queue {number} ({found.text})" if found.queued else None

    confirm(describe, yes=yes)
    session.print_text(session.ask(lambda client: send(client, dry_run=False)))


def _refuse_terms(why: str, terms: dict[str, object]) -> None:
    """Refuse options that have no meaning for several manifests, or for a range."""
    stated = [f"--{name.replace('_', '-')}" for name, value in terms.items() if value]
    if stated:
        raise click.UsageError(f"{', '.join(stated)}: {why}")


@command()
@choosing
@options.text("--until", "TIME", "When to resume, by default in UTC; 06:00 is the next.")
@options.seconds_option("--for", "seconds", "Duration, instead of --until.", type=_FROM_A_SECOND)
@click.option("--reason", default="", help="Reason, for the ledger and the audit.")
@options.flag("--dry-run", "Only list the manifests.")
def pause(
    session: Session, manifest_ids: tuple[str, ...], seconds: float | None, **terms: Any
) -> None:
    """Pause manifests for a while.

    The pause lasts until a time, or until 'headway resume'. When it ends, the misfire policy of
    each manifest decides about the due times that passed. Running work continues; manifests that
    you trigger by name run.
    """
    until, now = terms["until"], utc_now()
    if until is not None and seconds is not None:
        raise click.UsageError("give --until or --for, not both")
    if until is not None:
        terms["until"] = read_moment(until, "UTC", now=now, ahead=True)
    elif seconds is not None:
        terms["until"] = shifted(now, seconds=seconds)
    answer = session.ask(lambda client: client.pause(*manifest_ids, **terms))
    rows = [[paused.manifest, paused.next_due_at] for paused in answer.manifests]
    lines = window_table(("MANIFEST", "NEXT DUE"), rows)
    session.print(answer, lambda: [*lines, *answer.text.splitlines()])


@command()
@choosing
@options.flag("--dry-run", "Only show the fires that would follow.")
@options.yes_option
def resume(
    session: Session, manifest_ids: tuple[str, ...], dry_run: bool, yes: bool, **chosen: Any
) -> None:
    """Resume paused manifests.

    If missed due times would fire now, it shows them and asks for confirmation.
    """

    def send(*, dry_run: bool) -> ResumeAnswer:
        return session.ask(lambda client: client.resume(*manifest_ids, dry_run=dry_run, **chosen))

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
