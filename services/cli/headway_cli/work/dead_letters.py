"""Dead letters: look at them, retry them, put them away."""

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import click
import msgspec
from headway import Client
from headway_clock import utc_now
from headway_contract.dispatching import (
    Attempt,
    DeadLetterAnswer,
    DeadLetterStatus,
    LetterFilter,
    LetterResult,
)
from msgspec import UNSET

from headway_cli.terminal import ages, options
from headway_cli.terminal.completion import complete_groups, complete_jobs, complete_manifests
from headway_cli.terminal.confirm import confirm, yes_option
from headway_cli.terminal.connect import Reached, asking, json_option, print_json, print_lines
from headway_cli.terminal.progress import progressing
from headway_cli.terminal.tables import fields, print_table, table
from headway_cli.terminal.times import shown
from headway_cli.up.summary import counted

# Something that was named could not be done.
NOT_ALL = 1

_DONE = ("retried", "waits", "acknowledged")
_COUNTED = 1000


def _filtered(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say which letters are meant."""
    for option in reversed(
        (
            click.option("--group", help="Only of this group.", shell_complete=complete_groups),
            click.option("--job", help="Only of this job.", shell_complete=complete_jobs),
            click.option(
                "--manifest", help="Only of this manifest.", shell_complete=complete_manifests
            ),
            click.option(
                "--fingerprint", help="Only of this failure; with @VERSION only of that code."
            ),
            click.option("--older-than", type=ages.Age(), help="Such as 30m, 2h or 3d."),
            click.option("--newer-than", type=ages.Age(), help="Such as 30m, 2h or 3d."),
        )
    ):
        command = option(command)
    return command


def _asked(given: dict[str, Any]) -> dict[str, Any]:
    """A filter as the client takes it."""
    now = utc_now()
    older, newer = given.pop("older_than"), given.pop("newer_than")
    return {
        **given,
        "created_before": None if older is None else now - older,
        "created_after": None if newer is None else now - newer,
    }


@click.group("dead-letters", invoke_without_command=True)
@click.pass_context
def dead_letters(context: click.Context) -> None:
    """Work that failed for good and needs a person.

    Without a command it lists the dead letters that await somebody.
    """
    if context.invoked_subcommand is None:
        context.invoke(_list_command)


@dead_letters.command("list")
@_filtered
@click.option(
    "--state",
    type=click.Choice(["awaiting", "retried", "acknowledged", "all"]),
    default="awaiting",
    show_default=True,
    help="How they stand.",
)
@options.most_option
@json_option
@asking
def _list_command(reached: Reached, state: str, most: int, as_json: bool, **given: Any) -> None:
    """List dead letters, the newest first."""
    asked = _asked(given)
    wanted: Any = None if state == "all" else state

    async def ask(client: Client) -> list[DeadLetterStatus]:
        return await client.dead_letters(state=wanted, most=most + 1, **asked)

    found = reached.ask(ask)
    if as_json:
        print_json(found[:most])
        return
    if not found:
        click.echo("no dead letters await anybody" if state == "awaiting" else "no dead letters")
        return
    headings = (
        *("DEAD LETTER", "AGE", "JOB", "MANIFEST", "ATTEMPTS", "FAILURE", "FINGERPRINT"),
        "STANDS",
    )
    print_table(headings, [_row(one) for one in found[:most]])
    if len(found) > most:
        click.echo(f"there are more: use -n, or narrow it down (shown: {most})")


@dead_letters.command("show")
@click.argument("letter", metavar="ID", callback=options.identity)
@json_option
@asking
def _show_command(reached: Reached, letter: UUID, as_json: bool) -> None:
    """Show one dead letter in full: input, attempts, failures.

    ID is the dead letter's, or that of its work.
    """
    found = reached.ask(lambda client: client.dead_letter(letter))
    if as_json:
        print_json(found)
    else:
        print_lines(_letter_lines(found))


@dead_letters.command("retry")
@click.argument("letters", metavar="[ID]...", nargs=-1, callback=options.identity)
@_filtered
@click.option("--all", "every", is_flag=True, help="All that await somebody and match.")
@yes_option
@click.option("--input", "given_input", metavar="JSON", help="An input in place of the failed one.")
@click.option(
    "--input-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True),
    help="The same from a file; - is standard input.",
)
@json_option
@asking
def _retry_command(
    reached: Reached,
    letters: tuple[UUID, ...],
    every: bool,
    yes: bool,
    given_input: str | None,
    input_file: Path | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Run the work of dead letters again, in a new round.

    Their original input is kept; an edited one is recorded as a difference.
    """
    value = _read_input(given_input, input_file)
    if value is not UNSET and (every or len(letters) != 1):
        raise click.UsageError("an edited input is for one dead letter: name just that one")
    chosen = _chosen(reached, letters, every, yes, given, "retry")

    with progressing("retrying dead letters", quiet=as_json) as advance:

        async def ask(client: Client) -> list[LetterResult]:
            if isinstance(chosen, LetterFilter):
                return await client.retry_all(chosen, on_page=lambda one: advance(len(one)))
            return await client.retry(*chosen, input=value)

        results = reached.ask(ask)
    return _tell(results, as_json=as_json, every=every)


@dead_letters.command("acknowledge")
@click.argument("letters", metavar="[ID]...", nargs=-1, callback=options.identity)
@_filtered
@click.option("--note", default="", help="What was done about it.")
@click.option("--all", "every", is_flag=True, help="All that await somebody and match.")
@yes_option
@json_option
@asking
def _acknowledge_command(
    reached: Reached,
    letters: tuple[UUID, ...],
    note: str,
    every: bool,
    yes: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Put dead letters away; their manifests go on."""
    chosen = _chosen(reached, letters, every, yes, given, "acknowledge")

    with progressing("acknowledging dead letters", quiet=as_json) as advance:

        async def ask(client: Client) -> list[LetterResult]:
            if isinstance(chosen, LetterFilter):
                return await client.acknowledge_all(
                    chosen, note=note, on_page=lambda one: advance(len(one))
                )
            return await client.acknowledge(*chosen, note=note)

        results = reached.ask(ask)
    return _tell(results, as_json=as_json, every=every)


def _chosen(
    reached: Reached,
    letters: tuple[UUID, ...],
    every: bool,
    yes: bool,
    given: dict[str, Any],
    verb: str,
) -> tuple[UUID, ...] | LetterFilter:
    """The letters that are meant, once somebody has said so."""
    stated = any(value is not None for value in given.values())
    if letters and (every or stated):
        raise click.UsageError("give ids, or --all with filters, not both")
    if letters:
        return letters
    if not every:
        raise click.UsageError(
            f"nothing to {verb}: give ids of dead letters, or --all (with filters or without)"
        )
    asked = _asked(given)
    confirm(lambda: _hit(reached, asked, verb), yes=yes)
    return LetterFilter(**asked)


def _hit(reached: Reached, asked: dict[str, Any], verb: str) -> str | None:
    """What would be done with all; none if there are none."""
    found = reached.ask(lambda client: client.dead_letters(most=_COUNTED + 1, **asked))
    if len(found) > _COUNTED:
        return f"{verb} more than {_COUNTED} dead letters"
    return f"{verb} {counted(len(found), 'dead letter')}" if found else None


def _read_input(given: str | None, file: Path | None) -> Any:
    if given is not None and file is not None:
        raise click.UsageError("give --input or --input-file, not both")
    if given is not None:
        return options.read_json(given)
    if file is None:
        return UNSET
    text = sys.stdin.read() if str(file) == "-" else file.read_text(errors="replace")
    return options.read_json(text, "'--input-file'")


def _tell(results: list[LetterResult], *, as_json: bool, every: bool) -> int:
    failed = [one for one in results if one.result not in _DONE]
    if as_json:
        print_json(results)
    elif every:
        counts = Counter(one.result for one in results)
        said = ", ".join(f"{number} {word.replace('_', ' ')}" for word, number in counts.items())
        click.echo(f"{counted(len(results), 'dead letter')}: {said or 'none matched'}")
        print_lines([one.text for one in failed[:20]])
    else:
        print_lines([one.text for one in results])
    return NOT_ALL if failed and not every else 0


def _row(one: DeadLetterStatus) -> tuple[object, ...]:
    return (
        one.dead_letter,
        ages.told(one.created_at, utc_now()),
        one.job,
        one.manifest,
        one.attempts,
        _failure(one),
        one.fingerprint,
        _stands(one),
    )


def _failure(one: DeadLetterStatus) -> str:
    first = one.failure_message.strip().partition("\n")[0]
    text = f"{one.failure_kind}: {first}" if first else one.failure_kind
    return text if len(text) <= 60 else f"{text[:59]}…"


def _stands(one: DeadLetterStatus) -> str:
    if one.retry_asked_at is not None:
        return f"retry of {one.retry_asked_by} waits for work {one.waits_for or 'that has ended'}"
    return one.state if one.actor is None else f"{one.state} by {one.actor}"


def _letter_lines(found: DeadLetterAnswer) -> list[str]:
    one = found.status
    told = {
        "dead letter": one.dead_letter,
        "stands": _stands(one),
        "work": f"{one.work} (round {one.round})",
        "manifest": one.manifest or "-",
        "group": one.group,
        "job": one.job,
        "cause": found.cause,
        "since": f"{shown(one.created_at, 'UTC')} ({ages.told(one.created_at, utc_now())} ago)",
        "reason": one.reason.replace("_", " "),
        "fingerprint": one.fingerprint or "-",
        "resolved": shown(one.resolved_at, "UTC"),
        "note": one.note or "-",
        "input": msgspec.json.encode(found.input).decode(),
    }
    lines = fields(told)
    for change in found.edit:
        was = "-" if change.was is UNSET else msgspec.json.encode(change.was).decode()
        now = "-" if change.now is UNSET else msgspec.json.encode(change.now).decode()
        lines.append(f"edited {change.path or 'the whole input'}: {was} -> {now}")
    lines += ["", f"{counted(len(found.runs), 'run')} in round {one.round}:"]
    lines += table(
        ("RUN", "ATTEMPT", "WORKER", "STARTED", "FINISHED", "FAILURE"),
        [_attempt_row(run) for run in found.runs],
    )
    if found.failure.stack:
        lines += ["", *found.failure.stack.rstrip().splitlines()]
    return lines


def _attempt_row(run: Attempt) -> tuple[object, ...]:
    failure = run.failure
    said = run.state if failure is None else f"{failure.kind}: {failure.message}"
    return (
        run.run,
        run.attempt,
        run.worker,
        shown(run.started_at, "UTC"),
        shown(run.finished_at, "UTC"),
        said.partition("\n")[0][:100],
    )
