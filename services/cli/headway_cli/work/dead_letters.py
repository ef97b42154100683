"""`headway dead-letters`: list, show, retry or acknowledge dead letters."""

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import click
from headway import Client
from headway_clock import utc_now
from headway_contract.dead_letters import (
    Attempt,
    DeadLetterAnswer,
    DeadLetterStatus,
    LetterFilter,
    LetterResult,
)
from msgspec import UNSET

from headway_cli.serve.names import filters
from headway_cli.serve.session import Session, asking
from headway_cli.terminal import options
from headway_cli.terminal.interaction import confirm, progressing, yes_option
from headway_cli.terminal.output import (
    counted,
    fields,
    first_line,
    json_text,
    print_json,
    print_lines,
    table,
)
from headway_cli.terminal.times import Age, age_text, shown

NOT_ALL = 1
_DONE = ("retried", "waits", "acknowledged")
_COUNTED = 1000
_LISTED = 20

_letter_filters = options.together(
    filters,
    click.option(
        "--fingerprint", help="Only of this failure; with @VERSION only of that code version."
    ),
    click.option("--older-than", type=Age(), help="Such as 30m, 2h or 3d."),
    click.option("--newer-than", type=Age(), help="Such as 30m, 2h or 3d."),
)
_choosing = options.together(
    click.argument("letters", metavar="[ID]...", nargs=-1, callback=options.identity),
    _letter_filters,
    click.option("--all", "every", is_flag=True, help="All open dead letters that match."),
    yes_option,
)


def _read_filter(given: dict[str, Any]) -> dict[str, Any]:
    """Turn ages into times, as the client takes them."""
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
    """List, show, retry or acknowledge dead letters.

    A dead letter is work that failed for good. Without a command it lists the open ones.
    """
    if context.invoked_subcommand is None:
        context.invoke(_list_command)


@dead_letters.command("list")
@_letter_filters
@click.option(
    "--state",
    type=click.Choice(["awaiting", "retried", "acknowledged", "all"]),
    default="awaiting",
    show_default=True,
    help="Only in this state; awaiting means open.",
)
@options.most_option
@asking
def _list_command(session: Session, state: str, most: int, **given: Any) -> None:
    """List dead letters, the newest first."""
    wanted: Any = None if state == "all" else state
    query = _read_filter(given)
    session.print_items(
        session.ask(lambda client: client.dead_letters(state=wanted, most=most + 1, **query)),
        (
            *("DEAD LETTER", "AGE", "JOB", "MANIFEST", "ATTEMPTS", "FAILURE", "FINGERPRINT"),
            "STATUS",
        ),
        _row,
        empty="no open dead letters" if state == "awaiting" else "no dead letters",
        most=most,
    )


@dead_letters.command("show")
@click.argument("letter", metavar="ID", callback=options.identity)
@asking
def _show_command(session: Session, letter: UUID) -> None:
    """Show one dead letter with its input, attempts and failures.

    ID is that of the dead letter, or of its work.
    """
    found = session.ask(lambda client: client.dead_letter(letter))
    session.print(found, lambda: _letter_lines(found))


@dead_letters.command("retry")
@_choosing
@click.option("--input", "input_text", metavar="JSON", help="Input instead of the failed one.")
@click.option(
    "--input-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True),
    help="The same from a file; - is standard input.",
)
@asking
def _retry_command(
    session: Session,
    letters: tuple[UUID, ...],
    every: bool,
    yes: bool,
    input_text: str | None,
    input_file: Path | None,
    **given: Any,
) -> int:
    """Retry the work of dead letters, in a new round.

    The original input is kept; an edited one is recorded as a difference.
    """
    value = _read_input(input_text, input_file)
    if value is not UNSET and (every or len(letters) != 1):
        raise click.UsageError("an edited input is for one dead letter: give exactly one id")
    chosen = _choose(session, letters, every, yes, given, "retry")

    async def retry(client: Client, on_page: Callable[[Any], None]) -> list[LetterResult]:
        if isinstance(chosen, LetterFilter):
            return await client.retry_all(chosen, on_page=on_page)
        return await client.retry(*chosen, input=value)

    return _run(session, "retrying dead letters", retry, every=every)


@dead_letters.command("acknowledge")
@_choosing
@click.option("--note", default="", help="How it was resolved.")
@asking
def _acknowledge_command(
    session: Session, letters: tuple[UUID, ...], note: str, every: bool, yes: bool, **given: Any
) -> int:
    """Acknowledge dead letters; their manifests resume."""
    chosen = _choose(session, letters, every, yes, given, "acknowledge")

    async def acknowledge(client: Client, on_page: Callable[[Any], None]) -> list[LetterResult]:
        if isinstance(chosen, LetterFilter):
            return await client.acknowledge_all(chosen, note=note, on_page=on_page)
        return await client.acknowledge(*chosen, note=note)

    return _run(session, "acknowledging dead letters", acknowledge, every=every)


def _choose(
    session: Session,
    letters: tuple[UUID, ...],
    every: bool,
    yes: bool,
    given: dict[str, Any],
    verb: str,
) -> tuple[UUID, ...] | LetterFilter:
    """Return the chosen letters, after confirmation if they were chosen by a filter."""
    filtered = any(value is not None for value in given.values())
    if letters and (every or filtered):
        raise click.UsageError("give ids, or --all with filters, not both")
    if letters:
        return letters
    if not every:
        raise click.UsageError(
            f"nothing to {verb}: give ids of dead letters, or --all (with filters or without)"
        )
    query = _read_filter(given)

    def describe() -> str | None:
        found = session.ask(lambda client: client.dead_letters(most=_COUNTED + 1, **query))
        if len(found) > _COUNTED:
            return f"{verb} more than {_COUNTED} dead letters"
        return f"{verb} {counted(len(found), 'dead letter')}" if found else None

    confirm(describe, yes=yes)
    return LetterFilter(**query)


def _read_input(text: str | None, file: Path | None) -> Any:
    if text is not None and file is not None:
        raise click.UsageError("give --input or --input-file, not both")
    if text is not None:
        return options.read_json(text)
    if file is None:
        return UNSET
    content = sys.stdin.read() if str(file) == "-" else file.read_text(errors="replace")
    return options.read_json(content, "'--input-file'")


def _run(session: Session, title: str, act: Any, *, every: bool) -> int:
    """Resolve letters, print the results, and return the exit code."""
    with progressing(title, quiet=session.as_json) as advance:
        results: list[LetterResult] = session.ask(
            lambda client: act(client, lambda page: advance(len(page)))
        )
    failed = [result for result in results if result.result not in _DONE]
    if session.as_json:
        print_json(results)
    elif every:
        counts = Counter(result.result for result in results)
        text = ", ".join(f"{number} {word.replace('_', ' ')}" for word, number in counts.items())
        click.echo(f"{counted(len(results), 'dead letter')}: {text or 'none matched'}")
        print_lines(result.text for result in failed[:_LISTED])
    else:
        print_lines(result.text for result in results)
    return NOT_ALL if failed and not every else 0


def _row(letter: DeadLetterStatus) -> tuple[object, ...]:
    message = first_line(letter.failure_message, 1000)
    failure = f"{letter.failure_kind}: {message}" if message else letter.failure_kind
    return (
        *(letter.dead_letter, age_text(letter.created_at, utc_now()), letter.job, letter.manifest),
        *(letter.attempts, first_line(failure), letter.fingerprint, _state(letter)),
    )


def _state(letter: DeadLetterStatus) -> str:
    if letter.retry_asked_at is not None:
        work = letter.waits_for or "that has ended"
        return f"retry by {letter.retry_asked_by} waits for work {work}"
    return letter.state if letter.actor is None else f"{letter.state} by {letter.actor}"


def _letter_lines(found: DeadLetterAnswer) -> list[str]:
    letter = found.status
    age = age_text(letter.created_at, utc_now())
    lines = fields(
        {
            "dead letter": letter.dead_letter,
            "status": _state(letter),
            "work": f"{letter.work} (round {letter.round})",
            "manifest": letter.manifest or "-",
            "group": letter.group,
            "job": letter.job,
            "cause": found.cause,
            "since": f"{shown(letter.created_at)} ({age} ago)",
            "reason": letter.reason.replace("_", " "),
            "fingerprint": letter.fingerprint or "-",
            "resolved": shown(letter.resolved_at),
            "note": letter.note or "-",
            "input": json_text(found.input),
        }
    )
    for change in found.edit:
        before, after = ("-" if v is UNSET else json_text(v) for v in (change.was, change.now))
        lines.append(f"edited {change.path or 'the whole input'}: {before} -> {after}")
    lines += ["", f"{counted(len(found.runs), 'run')} in round {letter.round}:"]
    lines += table(
        ("RUN", "ATTEMPT", "WORKER", "STARTED", "FINISHED", "FAILURE"),
        [_attempt_row(run) for run in found.runs],
    )
    if found.failure.stack:
        lines += ["", *found.failure.stack.rstrip().splitlines()]
    return lines


def _attempt_row(run: Attempt) -> tuple[object, ...]:
    failure = run.failure
    result = run.state if failure is None else f"{failure.kind}: {failure.message}"
    return (
        *(run.run, run.attempt, run.worker, shown(run.started_at), shown(run.finished_at)),
        first_line(result, 100),
    )
