"""`headway trigger`."""

from typing import Any

import click
from headway import Client
from headway_clock import utc_now
from headway_contract.manifests import BackfillAnswer
from msgspec import UNSET

from headway_cli.schedules.change import change_many
from headway_cli.serve.names import check_choice, choosing
from headway_cli.serve.session import Session, await_outcome, command, wait_option
from headway_cli.terminal import options
from headway_cli.terminal.output import confirm, counted
from headway_cli.terminal.times import read_moment

_EXPIRY = "The work expires if it has not started by then."


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
