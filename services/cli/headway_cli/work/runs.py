"""Work and runs: what is under way, what waits and why, and how to end it early."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

import click
import msgspec
from headway import Client
from headway_clock import utc_now
from headway_contract.dispatching import (
    CancelAnswer,
    RunAnswer,
    RunStatus,
    WorkAnswer,
    WorkStatus,
)

from headway_cli.terminal import ages, options
from headway_cli.terminal.completion import (
    complete_groups,
    complete_jobs,
    complete_manifests,
    complete_workers,
)
from headway_cli.terminal.confirm import confirm, yes_option
from headway_cli.terminal.connect import Reached, asking, json_option, print_json, print_lines
from headway_cli.terminal.tables import fields, print_table, table
from headway_cli.terminal.times import shown
from headway_cli.up.summary import counted
from headway_cli.work.dead_letters import NOT_ALL

_DONE = ("settled", "asked_to_stop", "asked")
_LISTED = 20
_COUNTED = 1000
_WORK_HEADINGS = ("WORK", "MANIFEST", "JOB", "GROUP", "STATE", "WHY", "ROUND", "RUNS", "AGE")
_RUN_HEADINGS = ("RUN", "MANIFEST", "JOB", "STATE", "ATTEMPT", "WORKER", "STARTED", "TOOK", "WHY")

_Listed = TypeVar("_Listed")


@click.command()
@click.argument("ids", metavar="[ID]...", nargs=-1, callback=options.identity)
@click.option("--manifest", help="All work of this manifest.", shell_complete=complete_manifests)
@click.option("--group", help="All work of this group.", shell_complete=complete_groups)
@click.option("--reason", default="", help="Why, for the record and for whoever runs it.")
@yes_option
@json_option
@asking
def cancel(
    reached: Reached,
    ids: tuple[UUID, ...],
    manifest: str | None,
    group: str | None,
    reason: str,
    yes: bool,
    as_json: bool,
) -> int:
    """End runs or work early.

    What waits never starts; what runs is asked to stop. It is not tried again. Each ID is that
    of a run or of a piece of work. The exit code is 1 if something named had ended already.
    """
    if sum((bool(ids), manifest is not None, group is not None)) != 1:
        raise click.UsageError("give ids of runs or work, or --manifest, or --group")
    confirm(lambda: _hit(reached, manifest, group), yes=yes or bool(ids))

    async def ask(client: Client) -> CancelAnswer:
        if manifest is not None:
            return await client.cancel_manifest(manifest, reason=reason)
        if group is not None:
            return await client.cancel_group(group, reason=reason)
        return CancelAnswer(results=[await client.cancel(one, reason=reason) for one in ids])

    found = reached.ask(ask)
    if as_json:
        print_json(found)
    else:
        _tell_cancel(found, manifest or (f"group {group}" if group else ""))
    over = [one for one in found.results if one.result not in _DONE]
    return NOT_ALL if ids and over else 0


def _hit(reached: Reached, manifest: str | None, group: str | None) -> str | None:
    """What a cancel of all would end; none if nothing is under way."""

    async def ask(client: Client) -> list[WorkStatus]:
        return await client.works(manifest=manifest, group=group, most=_COUNTED + 1)

    found = reached.ask(ask)
    running = sum(one.state == "dispatched" for one in found)
    if len(found) > _COUNTED:
        number = f"more than {_COUNTED} works"
    else:
        number = f"{counted(len(found), 'work')} ({running} running, the others wait)"
    return f"cancel {number} of {manifest or f'group {group}'}" if found else None


def _tell_cancel(found: CancelAnswer, called: str) -> None:
    print_lines([one.text for one in found.results[:_LISTED]])
    if called:
        said = ", ".join(
            f"{number} {word.replace('_', ' ')}" for word, number in found.counts.items()
        )
        owed = f", {found.dropped} waited without work and were dropped" if found.dropped else ""
        click.echo(f"{called}: {said or 'no work was under way'}{owed}")


@click.command()
@click.argument("identity", metavar="[ID]", required=False, callback=options.identity)
@click.option(
    "--state",
    type=click.Choice(["queued", "dispatched", "waiting", "settled"]),
    help="Only in this state; without it all that is not settled.",
)
@click.option("--group", help="Only of this group.", shell_complete=complete_groups)
@click.option("--job", help="Only of this job.", shell_complete=complete_jobs)
@click.option("--manifest", help="Only of this manifest.", shell_complete=complete_manifests)
@click.option("--reason", help="Only what waits for this; of settled work, its outcome.")
@options.most_option
@json_option
@asking
def work(reached: Reached, identity: UUID | None, most: int, as_json: bool, **given: Any) -> None:
    """List work that is not settled, or show one piece of it.

    ID is that of the work, or of one of its runs.
    """
    if identity is not None:
        _refuse_filters(given)
        one = reached.ask(lambda client: client.work(identity))
        print_json(one) if as_json else print_lines(_work_lines(one))
        return

    async def ask(client: Client) -> list[WorkStatus]:
        return await client.works(most=most + 1, **given)

    found = reached.ask(ask)
    if as_json:
        print_json(found[:most])
    elif not found:
        click.echo("no such work" if any(given.values()) else "no work is under way")
    else:
        _print_some(_WORK_HEADINGS, found, _work_row, most)


@click.command()
@click.argument("identity", metavar="[ID]", required=False, callback=options.identity)
@click.option(
    "--state",
    type=click.Choice(["pending", "in_progress", "completed", "failed", "cancelled"]),
    help="Only in this state.",
)
@click.option("--group", help="Only of this group.", shell_complete=complete_groups)
@click.option("--job", help="Only of this job.", shell_complete=complete_jobs)
@click.option("--manifest", help="Only of this manifest.", shell_complete=complete_manifests)
@click.option("--work", callback=options.identity, metavar="ID", help="Only of this work.")
@click.option("--worker", help="Only by this worker.", shell_complete=complete_workers)
@options.since_option
@options.until_option
@options.most_option
@json_option
@asking
def runs(reached: Reached, identity: UUID | None, most: int, as_json: bool, **given: Any) -> None:
    """List runs, the newest first, or show one in full.

    --since and --until go by when runs were admitted.
    """
    if identity is not None:
        _refuse_filters(given)
        one = reached.ask(lambda client: client.run(identity))
        print_json(one) if as_json else print_lines(_run_lines(one))
        return

    async def ask(client: Client) -> list[RunStatus]:
        return await client.runs(most=most + 1, **given)

    found = reached.ask(ask)
    if as_json:
        print_json(found[:most])
    elif not found:
        click.echo("no such runs" if any(given.values()) else "nothing has run yet")
    else:
        _print_some(_RUN_HEADINGS, found, _run_row, most)


def _refuse_filters(given: dict[str, Any]) -> None:
    stated = [f"--{name}" for name, value in given.items() if value is not None]
    if stated:
        raise click.UsageError(f"an id stands for one thing: leave {', '.join(stated)} out")


def _print_some(
    headings: Sequence[str],
    found: Sequence[_Listed],
    row: Callable[[_Listed], tuple[object, ...]],
    most: int,
) -> None:
    """As many as were asked for, and that there is more."""
    print_table(headings, [row(one) for one in found[:most]])
    if len(found) > most:
        click.echo(f"there is more: use -n, or narrow it down (shown: {most})")


def _work_row(one: WorkStatus) -> tuple[object, ...]:
    return (
        *(one.work, one.manifest, one.job, one.group, one.state, _why(one), one.round, one.runs),
        ages.told(one.queued_at, utc_now()),
    )


def _why(one: WorkStatus) -> str:
    if one.state == "settled":
        return one.outcome or ""
    if one.cancel_requested_at is not None:
        return f"is to stop: {one.cancel_reason}"
    return (one.wait_reason or "").replace("_", " ")


def _work_lines(found: WorkAnswer) -> list[str]:
    one = found.status
    told = {
        "work": f"{one.work} (round {one.round})",
        "manifest": one.manifest or "-",
        "group": one.group,
        "job": one.job,
        "cause": one.cause,
        "state": " ".join(filter(None, (one.state, f"({_why(one)})" if _why(one) else ""))),
        "priority": one.priority,
        "due": shown(one.due_at, "UTC"),
        "queued": shown(one.queued_at, "UTC"),
        "not before": shown(one.not_before, "UTC"),
        "settled": shown(one.settled_at, "UTC"),
        "attempts": f"{one.attempts} of {found.retry.get('attempts', '?')} in this round",
        "timeout": f"{found.timeout_seconds:g} s",
        "dead letters": ", ".join(map(str, found.dead_letters)) or "-",
        "input": msgspec.json.encode(found.input).decode(),
    }
    lines = fields(told)
    if found.runs:
        lines += ["", f"{counted(len(found.runs), 'run')}:"]
        headings = ("RUN", "ROUND", "ATTEMPT", "STATE", "WORKER", "STARTED", "TOOK", "WHY")
        rows = [
            (run.run, run.round, run.attempt, run.state, run.worker, *_times(run))
            for run in found.runs
        ]
        lines += table(headings, rows)
    return lines


def _run_row(one: RunStatus) -> tuple[object, ...]:
    return (one.run, one.manifest, one.job, one.state, one.attempt, one.worker, *_times(one))


def _times(one: RunStatus) -> tuple[str, str, str]:
    failure = f"{one.failure_kind}: {one.failure_message}" if one.failure_kind else ""
    why = (failure or one.cancel_reason or "").partition("\n")[0]
    return (
        shown(one.started_at, "UTC"),
        _took(one.started_at, one.finished_at),
        why if len(why) <= 60 else f"{why[:59]}…",
    )


def _took(started: datetime | None, finished: datetime | None) -> str:
    if started is None or finished is None:
        return "-"
    return f"{(finished - started).total_seconds():.3f} s"


def _run_lines(found: RunAnswer) -> list[str]:
    one = found.status
    told = {
        "run": one.run,
        "work": f"{one.work} (round {one.round}, attempt {one.attempt})",
        "manifest": one.manifest or "-",
        "group": one.group,
        "job": one.job,
        "state": one.state,
        "worker": " on ".join(filter(None, (one.worker, one.host))) or "-",
        "due": shown(one.due_at, "UTC"),
        "admitted": shown(one.created_at, "UTC"),
        "started": shown(one.started_at, "UTC"),
        "finished": shown(one.finished_at, "UTC"),
        "took": _took(one.started_at, one.finished_at),
        "cancelled": one.cancel_reason or "-",
        "progress": _progress(found),
        "trace": found.trace_id or "-",
        "input": msgspec.json.encode(found.input).decode(),
        "output": msgspec.json.encode(found.output).decode(),
    }
    lines = fields(told)
    if found.failure is not None:
        lines += ["", f"{found.failure.kind}: {found.failure.message}"]
        lines += found.failure.stack.rstrip().splitlines()
    return lines + _log_lines(found)


def _progress(found: RunAnswer) -> str:
    percent = "" if found.percent is None else f"{found.percent:g} %"
    return " ".join(filter(None, (percent, found.message))) or "-"


def _log_lines(found: RunAnswer) -> list[str]:
    """What the run has logged, and how much of it was not kept."""
    if not found.log and not found.log_dropped:
        return []
    lines = ["", "log:"]
    for one in found.log:
        told = [
            f"{name}={msgspec.json.encode(value).decode()}" for name, value in one.fields.items()
        ]
        lines.append(" ".join((f"{one.at:%H:%M:%S.%f}"[:-3], one.level, one.message, *told)))
    if found.log_dropped:
        lines.append(f"({found.log_dropped} lines more were not kept)")
    return lines
