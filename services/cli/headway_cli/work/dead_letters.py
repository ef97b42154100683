"""`headway dead-letters`: list, show, retry or acknowledge dead letters."""

import sys
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import click
from headway import Client
from headway.client.reads import Id
from headway_clock import utc_now
from headway_contract import dead_letters as contract
from msgspec import UNSET

from headway_cli.serve.names import filters
from headway_cli.serve.session import Session, command
from headway_cli.terminal import options, output
from headway_cli.terminal.output import counted, counts_text, fields, first_line, json_text, table
from headway_cli.terminal.times import age_text, read_past, shown

NOT_ALL = 1
_DONE = ("retried", "waits", "acknowledged")
_COUNTED = 1000
_STATES = ("awaiting", "retried", "acknowledged", "all")
_LISTED = 20
_MOST = 50
_HEADINGS = (
    *("DEAD LETTER", "AGE", "JOB", "MANIFEST", "ATTEMPTS", "FAILURE", "FINGERPRINT"),
    "STATUS",
)


_age: Any = {"callback": read_past, "metavar": "AGE", "help": "Such as 30m, 2h or 3d."}
_letter_filters = options.together(
    filters,
    click.option("--fingerprint", help="Only of this failure; with @VERSION of that code version."),
    click.option("--older-than", "created_before", **_age),
    click.option("--newer-than", "created_after", **_age),
)
_choosing = options.together(
    click.argument("letters", metavar="[ID]...", nargs=-1, callback=options.identity),
    _letter_filters,
    click.option("--all", "every", is_flag=True, help="All open dead letters that match."),
    options.yes_option,
)


class _ListByDefault(click.Group):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read `--json` and other options without a command as those of `list`."""
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group("dead-letters", cls=_ListByDefault)
def dead_letters() -> None:
    """List, show, retry or acknowledge dead letters.

    A dead letter is work that failed for good. Without a command it lists the open ones.
    """


@command("list", of=dead_letters)
@_letter_filters
@options.choice("--state", _STATES, "Only in this state; awaiting means open.", default="awaiting")
@options.most_option
def _list_command(session: Session, state: str, most: int, **given: Any) -> None:
    """List dead letters, the newest first."""
    _print_letters(session, state, most, **given)


def _print_letters(session: Session, state: str, most: int, **given: Any) -> None:
    now = utc_now()
    wanted: Any = None if state == "all" else state
    session.print_items(
        session.ask(lambda client: client.dead_letters(state=wanted, most=most + 1, **given)),
        _HEADINGS,
        lambda letter: (
            *(letter.dead_letter, age_text(letter.created_at, now), letter.job, letter.manifest),
            *(letter.attempts, _failure(letter), letter.fingerprint, _state(letter)),
        ),
        empty="no open dead letters" if state == "awaiting" else "no dead letters",
        most=most,
    )


@command("show", of=dead_letters)
@click.argument("letter", metavar="ID", callback=options.identity)
def _show_command(session: Session, letter: Id) -> None:
    """Show one dead letter with its input, attempts and failures.

    ID is that of the dead letter, or of its work.
    """
    found = session.ask(lambda client: client.dead_letter(letter))
    session.print(found, lambda: _letter_lines(found))


@command("retry", of=dead_letters)
@_choosing
@click.option("--input", "input_text", metavar="JSON", help="Input instead of the failed one.")
@click.option(
    "--input-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True),
    help="The same from a file; - is standard input.",
)
def _retry_command(
    session: Session, input_text: str | None, input_file: Path | None, **chosen: Any
) -> int:
    """Retry the work of dead letters, in a new round.

    The original input is kept; an edited one is recorded as a difference.
    """
    terms: dict[str, Any] = {}
    if input_text is not None and input_file is not None:
        raise click.UsageError("give --input or --input-file, not both")
    if input_text is not None:
        terms["input"] = options.read_json(input_text)
    elif input_file is not None:
        piped = str(input_file) == "-"
        content = sys.stdin.read() if piped else input_file.read_text(errors="replace")
        terms["input"] = options.read_json(content, "'--input-file'")
    if terms and (chosen["every"] or len(chosen["letters"]) != 1):
        raise click.UsageError("an edited input is for one dead letter: give exactly one id")
    return _resolve(session, "retry", "retrying dead letters", terms, **chosen)


@command("acknowledge", of=dead_letters)
@_choosing
@click.option("--note", default="", help="How it was resolved.")
def _acknowledge_command(session: Session, note: str, **chosen: Any) -> int:
    """Acknowledge dead letters; their manifests resume."""
    terms = {"note": note}
    return _resolve(session, "acknowledge", "acknowledging dead letters", terms, **chosen)


def _resolve(
    session: Session,
    verb: Literal["retry", "acknowledge"],
    title: str,
    terms: dict[str, Any],
    *,
    letters: tuple[Id, ...],
    every: bool,
    yes: bool,
    **given: Any,
) -> int:
    """Resolve the chosen letters, print the results, and return the exit code."""
    if letters and (every or any(value is not None for value in given.values())):
        raise click.UsageError("give ids, or --all with filters, not both")
    if not letters and not every:
        raise click.UsageError(
            f"nothing to {verb}: give ids of dead letters, or --all (with filters or without)"
        )

    def describe() -> str | None:
        found = session.ask(lambda client: client.dead_letters(most=_COUNTED + 1, **given))
        if len(found) > _COUNTED:
            return f"{verb} more than {_COUNTED} dead letters"
        return f"{verb} {counted(len(found), 'dead letter')}" if found else None

    async def act(client: Client) -> Any:
        if letters:
            return await getattr(client, verb)(*letters, **terms)
        terms["on_page"] = lambda page: advance(len(page))
        return await getattr(client, f"{verb}_all")(contract.LetterFilter(**given), **terms)

    output.confirm(describe, yes=yes or bool(letters))
    with output.progressing(title, quiet=session.as_json) as advance:
        results: list[contract.LetterResult] = session.ask(act)
    failed = [result for result in results if result.result not in _DONE]

    def lines() -> list[str]:
        if letters:
            return [result.text for result in results]
        counts = counts_text(Counter(result.result for result in results)) or "none matched"
        total = f"{counted(len(results), 'dead letter')}: {counts}"
        return [total, *(result.text for result in failed[:_LISTED])]

    session.print(results, lines)
    return NOT_ALL if failed and letters else 0


def _failure(letter: contract.DeadLetterStatus) -> str:
    message = first_line(letter.failure_message, 1000)
    return first_line(f"{letter.failure_kind}: {message}" if message else letter.failure_kind)


def _state(letter: contract.DeadLetterStatus) -> str:
    if letter.retry_asked_at is not None:
        work = letter.waits_for or "that has ended"
        return f"retry by {letter.retry_asked_by} waits for work {work}"
    return letter.state if letter.actor is None else f"{letter.state} by {letter.actor}"


def _letter_lines(found: contract.DeadLetterAnswer) -> list[str]:
    letter = found.status
    age = age_text(letter.created_at, utc_now())
    lines = fields(
        {
            "dead letter": letter.dead_letter,
            "status": _state(letter),
            "work": f"{letter.work} (round {letter.round})",
            **output.attributes(letter, "manifest", "group", "job"),
            "cause": found.cause,
            "since": f"{shown(letter.created_at)} ({age} ago)",
            "reason": letter.reason.replace("_", " "),
            "fingerprint": letter.fingerprint,
            "resolved": letter.resolved_at,
            "note": letter.note,
            "input": json_text(found.input),
        }
    )
    for change in found.edit:
        before, after = ("-" if v is UNSET else json_text(v) for v in (change.was, change.now))
        lines.append(f"edited {change.path or 'the whole input'}: {before} -> {after}")
    lines += ["", f"{counted(len(found.runs), 'run')} in round {letter.round}:"]
    headings = ("RUN", "ATTEMPT", "WORKER", "STARTED", "FINISHED", "FAILURE")
    rows = []
    for run in found.runs:
        result = f"{run.failure.kind}: {run.failure.message}" if run.failure else run.state
        times = (run.started_at, run.finished_at)
        rows.append((run.run, run.attempt, run.worker, *times, first_line(result, 100)))
    lines += table(headings, rows)
    if found.failure.stack:
        lines += ["", *found.failure.stack.rstrip().splitlines()]
    return lines
