"""`headway work`, `runs`, `cancel` and `workers`; `enqueue`, `enqueued` and `dismiss`."""

from typing import Any

import click
from headway import Client
from headway.client.reads import Id
from headway_clock import utc_now
from headway_contract.operations import WorkerStatus
from headway_contract.work_queue import CancelAnswer, RunAnswer, RunStatus, WorkAnswer, WorkStatus

from headway_cli.serve import names
from headway_cli.serve.session import (
    Session,
    asking,
    await_outcome,
    command,
    shows_itself,
    wait_option,
)
from headway_cli.terminal import options, output
from headway_cli.terminal.output import attributes, counted, counts_text, fields, json_text, table
from headway_cli.terminal.times import age_text, duration_text, read_moment, shown
from headway_cli.work.logs import log_lines

NOT_ALL = 1
_CANCELLED = ("settled", "asked_to_stop", "asked")
_WORK_STATES = ("queued", "dispatched", "waiting", "settled")
_RUN_STATES = ("pending", "in_progress", "completed", "failed", "cancelled")
_LISTED = 20
_COUNTED = 1000

_id_argument = click.argument("identity", metavar="[ID]", required=False, callback=options.identity)


@command()
@click.argument("ids", metavar="[ID]...", nargs=-1, callback=options.identity)
@options.text("--manifest", "ID", "All work of this manifest.")
@options.text("--group", "NAME", "All work of this group.")
@click.option("--reason", default="", help="Reason, for the record and the running job.")
@options.yes_option
def cancel(session: Session, ids: tuple[Id, ...], reason: str, yes: bool, **chosen: Any) -> int:
    """Cancel runs or work.

    Waiting work never starts; running work gets a stop request. It is not retried. Each ID names a
    run or a piece of work. The exit code is 1 if one of them had already ended.
    """
    manifest, group = chosen["manifest"], chosen["group"]
    if sum((bool(ids), manifest is not None, group is not None)) != 1:
        raise click.UsageError("give ids of runs or work, or --manifest, or --group")
    name = manifest or (f"group {group}" if group else "")

    def describe() -> str | None:
        found = session.ask(lambda client: client.works(most=_COUNTED + 1, **chosen))
        if not found:
            return None
        running = sum(work.state == "dispatched" for work in found)
        number = f"{counted(len(found), 'piece of work')} ({running} running, the others wait)"
        number = number if len(found) <= _COUNTED else f"more than {_COUNTED} pieces of work"
        return f"cancel {number} of {name}"

    output.confirm(describe, yes=yes or bool(ids))

    async def ask(client: Client) -> CancelAnswer:
        if manifest is not None:
            return await client.cancel_manifest(manifest, reason=reason)
        if group is not None:
            return await client.cancel_group(group, reason=reason)
        return CancelAnswer(
            results=[await client.cancel(identity, reason=reason) for identity in ids]
        )

    found = session.ask(ask)
    lines = [result.text for result in found.results[:_LISTED]]
    if name:
        dropped = f", dropped {found.dropped} pending" if found.dropped else ""
        lines.append(f"{name}: {counts_text(found.counts) or 'no work was under way'}{dropped}")
    session.print(found, lambda: lines)
    ended = [result for result in found.results if result.result not in _CANCELLED]
    return NOT_ALL if ids and ended else 0


@command()
@_id_argument
@options.choice("--state", _WORK_STATES, "Only in this state; by default all that is not settled.")
@names.filters
@click.option("--reason", help="Only with this reason to wait; of settled work, its outcome.")
@options.most_option
def work(session: Session, identity: Id | None, most: int, **given: Any) -> None:
    """List work that is not settled, or show one piece of work.

    ID is that of the work, or of one of its runs.
    """
    if identity is not None:
        _show_one(session, lambda client: client.work(identity), _work_lines, given)
        return
    session.print_items(
        session.ask(lambda client: client.works(most=most + 1, **given)),
        ("WORK", "MANIFEST", "JOB", "GROUP", "STATE", "WHY", "ROUND", "RUNS", "AGE"),
        lambda work: (
            *(work.work, work.manifest, work.job, work.group, work.state, why_text(work)),
            *(work.round, work.runs, age_text(work.queued_at, utc_now())),
        ),
        empty="no matching work" if any(given.values()) else "no work is under way",
        most=most,
    )


@command()
@_id_argument
@options.choice("--state", _RUN_STATES, "Only in this state.")
@options.flag("--failed", "Only failed runs, like --state failed.")
@click.option("--text", help="Only with this text in the input or the error, in any case.")
@names.filters
@names.work_filter
@names.worker_filter
@options.since_option
@options.until_option
@options.most_option
def runs(session: Session, identity: Id | None, most: int, failed: bool, **given: Any) -> None:
    """List runs, the newest first, or show one run.

    --since and --until compare the time at which runs were admitted.
    """
    if identity is not None:
        shown = {**given, "failed": failed or None}
        _show_one(session, lambda client: client.run(identity), _run_lines, shown)
        return
    if failed and given["state"] not in (None, "failed"):
        raise click.UsageError(f"--failed and --state {given['state']} exclude each other")
    given["state"] = "failed" if failed else given["state"]
    session.print_items(
        session.ask(lambda client: client.runs(most=most + 1, **given)),
        ("RUN", "MANIFEST", "JOB", "STATE", "ATTEMPT", "WORKER", "STARTED", "TOOK", "WHY"),
        lambda run: (run.run, run.manifest, run.job, run.state, run.attempt, *_result(run)),
        empty="no matching runs" if any(given.values()) else "no runs yet",
        most=most,
    )


def _show_one(session: Session, ask: Any, lines: Any, given: dict[str, Any]) -> None:
    stated = [f"--{name}" for name, value in given.items() if value is not None]
    if stated:
        raise click.UsageError(f"an id selects one thing: leave out {', '.join(stated)}")
    found = session.ask(ask)
    session.print(found, lambda: lines(found))


def why_text(work: WorkStatus) -> str:
    """Return the outcome of work, or why it waits and until when."""
    if work.state == "settled":
        return work.outcome or ""
    if work.cancel_requested_at is not None:
        return f"cancel requested: {work.cancel_reason}"
    reason = (work.wait_reason or "").replace("_", " ")
    later = work.not_before
    if work.state in ("queued", "waiting") and later is not None and later > utc_now():
        reason += f" until {shown(later)}"
    return reason.strip()


def _work_lines(found: WorkAnswer) -> list[str]:
    work = found.status
    lines = fields(
        {
            "work": f"{work.work} (round {work.round})",
            **attributes(work, "manifest", "group", "job", "cause"),
            "state": f"{work.state} ({why_text(work)})" if why_text(work) else work.state,
            **attributes(work, "priority", "due_at", "queued_at", "not_before", "settled_at"),
            "attempts": f"{work.attempts} of {found.retry.get('attempts', '?')} in this round",
            "timeout": f"{found.timeout_seconds:g} s",
            "dead letters": found.dead_letters,
            "input": json_text(found.input),
        }
    )
    if found.runs:
        headings = ("RUN", "ROUND", "ATTEMPT", "STATE", "WORKER", "STARTED", "TOOK", "WHY")
        rows = [(run.run, run.round, run.attempt, run.state, *_result(run)) for run in found.runs]
        lines += ["", f"{counted(len(found.runs), 'run')}:", *table(headings, rows)]
    return lines


def _result(run: RunStatus) -> tuple[object, ...]:
    failure = f"{run.failure_kind}: {run.failure_message}" if run.failure_kind else ""
    took = duration_text(run.started_at, run.finished_at)
    return run.worker, run.started_at, took, output.first_line(failure or run.cancel_reason or "")


def _run_lines(found: RunAnswer) -> list[str]:
    run = found.status
    percent = "" if found.percent is None else f"{found.percent:g} %"
    lines = fields(
        {
            "run": run.run,
            "work": f"{run.work} (round {run.round}, attempt {run.attempt})",
            **attributes(run, "manifest", "group", "job", "state"),
            "worker": " on ".join(filter(None, (run.worker, run.host))),
            "due": run.due_at,
            "admitted": run.created_at,
            **attributes(run, "started_at", "finished_at"),
            "took": duration_text(run.started_at, run.finished_at),
            "cancelled": run.cancel_reason,
            "progress": " ".join(filter(None, (percent, found.message))),
            "trace": found.trace_id,
            "input": json_text(found.input),
            "output": json_text(found.output),
        }
    )
    if found.failure is not None:
        lines += ["", f"{found.failure.kind}: {found.failure.message}"]
        lines += found.failure.stack.rstrip().splitlines()
    lines += ["", "log:"] if found.log or found.log_dropped else []
    lines += [line for entry in found.log for line in log_lines(entry)]
    lines += [f"({counted(found.log_dropped, 'line')} dropped)"] if found.log_dropped else []
    return lines


@click.group(invoke_without_command=True)
@asking
@click.pass_context
def workers(context: click.Context, session: Session) -> None:
    """List workers, or drain some."""
    if shows_itself(context):
        session.print_items(
            session.ask(lambda client: client.workers()),
            ("WORKER", "STATUS", "BUSY", "HOST", "VERSION", "JOBS", "LAST HEARTBEAT"),
            _worker_row,
            empty="no worker has sent a heartbeat: start one with 'headway worker'",
        )


@command("drain", of=workers)
@click.argument("workers", metavar="NAME...", nargs=-1, required=True)
def _drain_command(session: Session, workers: tuple[str, ...]) -> int:
    """Drain workers: they take no new orders, finish their runs, and exit.

    A worker that starts later under the same name is not affected. The exit code is 1 if a worker
    is unknown.
    """
    found = session.ask(lambda headway: headway.drain(*workers))
    session.print(found, lambda: [result.text for result in found])
    return NOT_ALL if any(result.result == "unknown" for result in found) else 0


def _worker_row(worker: WorkerStatus) -> tuple[object, ...]:
    state = "silent" if not worker.alive else "draining" if worker.draining else "alive"
    version = worker.code_version or f"{worker.sdk} {worker.sdk_version}".strip()
    heard = f"{age_text(worker.last_heard_at, utc_now())} ago"
    busy = f"{len(worker.runs)} of {worker.slots}"
    return (worker.worker, state, busy, worker.host, version, worker.jobs, heard)


@command()
@click.argument("job", metavar="JOB")
@click.option("--input", "input_text", metavar="JSON", help="Input of the job.")
@click.option("--group", help="A group other than the job's.")
@options.priority_option
@options.seconds_option("--delay", "delay", "Do not start before this time has passed.")
@options.text("--start-by", "TIME", "The work expires if it has not started by then, in UTC.")
@click.option("--key", help="Idempotency key: the same key of a job enqueues only once.")
@wait_option
def enqueue(session: Session, job: str, input_text: str | None, waits: bool, **terms: Any) -> int:
    """Queue work of a job, without a manifest.

    With --wait it prints the outcome; with --json as well, the work in full.
    """
    value = None if input_text is None else options.read_json(input_text)
    if terms["start_by"] is not None:
        terms["start_by"] = read_moment(terms["start_by"], "UTC", now=utc_now(), ahead=True)
    found = session.ask(lambda client: client.enqueue(job, value, **terms))
    if not (session.as_json and waits):
        session.print_text(found)
    return await_outcome(session, found.work) if waits else 0


@command()
@options.flag("--refused", "Only refused work.", "refused_only")
def enqueued(session: Session, refused_only: bool) -> None:
    """List enqueued work that is not queued yet or was refused."""
    session.print_items(
        session.ask(lambda client: client.enqueued(refused_only=refused_only)),
        ("WORK", "JOB", "KEY", "BY", "ENQUEUED", "STATUS", "REASON"),
        lambda work: (
            *(work.work, work.job, work.key, work.enqueued_by, work.enqueued_at),
            *(work.state, work.reason),
        ),
        empty="no work was refused" if refused_only else "no work is pending, none was refused",
    )


@command()
@click.argument("work", metavar="WORK", callback=options.identity)
def dismiss(session: Session, work: Id) -> None:
    """Dismiss enqueued work that was refused."""
    session.print_text(session.ask(lambda client: client.dismiss(work)))
