"""Explain the state of a piece of work, and why it waits, gate by gate.

The answer is read without the gate's lock, so it may be outdated when it arrives.
"""

from datetime import datetime
from typing import Any
from uuid import UUID

from headway_contract import subjects
from headway_contract.work import stored_terms
from headway_contract.work_queue import (
    ExplainWorkAnswer,
    GateStatus,
    OriginAnswer,
    SlotHolder,
    WorkQuestion,
)
from headway_decisions.capacity import waiting
from headway_decisions.capacity.waiting import Waiter
from headway_decisions.wording import utc
from headway_errors import NotFound, RequestFailed
from headway_jetstream_kit import Broker
from headway_jetstream_kit.ask import ask
from headway_postgres_kit import Connection, Database
from headway_tracing.log import get_logger
from msgspec import structs

from headway_dispatcher.gate.gate import Situation, read_situation
from headway_dispatcher.operate.wait_estimate import (
    MOST_COUNTED,
    Estimate,
    WaitEstimate,
    waits_for_key,
)
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.store import explanations

log = get_logger(__name__)

_MOST_HOLDERS = 20
_HOLDERS_SHOWN = 3
# Less than the caller waits for this answer.
_SCHEDULER_TIMEOUT = 2.0


async def explain(
    database: Database, broker: Broker, settings: DispatcherSettings, question: WorkQuestion
) -> ExplainWorkAnswer:
    """Return the state of a piece of work."""
    async with database.transaction() as connection:
        row = await connection.fetchrow(explanations["work"], question.work)
        if row is not None:
            if row["state"] in ("queued", "waiting"):
                situation = await read_situation(connection, database, settings)
                return await _explain_waiting(connection, row, situation, settings)
            letter = None
            if row["outcome"] == "dead_lettered":
                letter = await connection.fetchrow(explanations["letter"], row["id"])
            answer = _answer(row)
            return structs.replace(answer, text=_describe(answer, row, letter))
    return await _ask_scheduler(broker, question)


async def _ask_scheduler(broker: Broker, question: WorkQuestion) -> ExplainWorkAnswer:
    """Return the scheduler's answer about work that is not stored here."""
    work = question.work
    try:
        origin = await ask(
            broker, subjects.ORIGIN_QUESTION, question, OriginAnswer, timeout=_SCHEDULER_TIMEOUT
        )
    except RequestFailed as error:
        log.info("origin of work unknown", work=work, error=error)
        origin = OriginAnswer()
    if origin.state == "unknown":
        raise NotFound(
            f"work {work} is not known to the dispatcher: it was never queued, has not arrived "
            "yet, or was deleted"
        )
    return ExplainWorkAnswer(
        work=work,
        state=origin.state,
        manifest=origin.manifest,
        group=origin.group,
        job=origin.job,
        queued_at=origin.since,
        text=f"{_name_work(work, origin)} {origin.text}.",
    )


async def _explain_waiting(
    connection: Connection, row: Any, situation: Situation, settings: DispatcherSettings
) -> ExplainWorkAnswer:
    gates = waiting.gates(
        _waiter(row), situation.limits, situation.load, situation.fleet, now=situation.now
    )
    closed = [gate for gate in gates if not gate.open]
    first = closed[0] if closed else None
    estimates = WaitEstimate(connection, row, situation, settings)
    holders, ahead = await estimates.holders(first), await estimates.ahead(first)
    estimate = _expires_first(await estimates.start(closed), _start_by(row))
    before = None if ahead is None else sum(ahead.values())
    answer = structs.replace(
        _answer(row),
        gates=gates,
        reason="awaiting_gate" if first is None else first.gate,
        holders=holders[:_MOST_HOLDERS],
        holders_in_all=len(holders),
        ahead=None if before is None else min(before, MOST_COUNTED),
        ahead_or_more=before is not None and before >= MOST_COUNTED,
        estimated_start=estimate.at,
        estimate=estimate.basis,
    )
    return structs.replace(answer, text=_describe(answer, row))


def _answer(row: Any) -> ExplainWorkAnswer:
    """Return the columns of work that every answer has."""
    names = ("state", "job", "manifest", "round", "attempts", "runs", "queued_at", "outcome")
    fields = {name: row[name] for name in names}
    return ExplainWorkAnswer(
        work=row["id"], group=row["group_name"], expires_at=_start_by(row), text="", **fields
    )


def _start_by(row: Any) -> datetime | None:
    """Return when work expires; `None` if it was tried or a worker claimed it."""
    claimed = row["state"] == "dispatched" and (row["claimed_by"] or row["started_at"]) is not None
    if claimed or row["state"] == "settled" or row["attempts"] > 0:
        return None
    start_by: datetime | None = row["start_by"]
    return start_by


def _waiter(row: Any) -> Waiter:
    return Waiter(
        group=row["group_name"],
        job=row["job"],
        not_before=row["not_before"],
        start_by=_start_by(row),
        manifest=row["manifest"],
        manifest_disabled=row["manifest_disabled"],
        key=row["concurrency_key"],
        key_limit=row["concurrency_limit"],
        key_active=row["key_active"],
        key_kept=waits_for_key(row) and not row["key_noted"],
    )


def _describe(answer: ExplainWorkAnswer, row: Any, letter: Any = None) -> str:
    """Return the answer as text; `letter` is the dead letter of the work, if it has one."""
    subject = _name_work(answer.work, answer)
    if answer.state == "settled":
        settled = f"{subject} is settled since {utc(row['settled_at'])}: {_outcome(answer, row)}."
        return settled if letter is None else f"{settled} {_dead_letter(letter)}"
    if answer.state == "dispatched":
        return " ".join([f"{subject} {_run(row)}.", *_cancel(row), *_expiry(answer)])
    closed = [gate for gate in answer.gates if not gate.open]
    reason = _reason(closed[0], row) if closed else "all gates are open"
    sentences = [f"{subject} waits since {utc(row['queued_at'])}: {reason}."]
    if closed[1:] and answer.reason != "start_by":
        also = "; ".join(_reason(gate, row) for gate in closed[1:])
        sentences.append(f"Also closed: {also}.")
    return " ".join([*sentences, *_line(answer)])


def _name_work(work: UUID, known: ExplainWorkAnswer | OriginAnswer) -> str:
    """Name work with its manifest, job and group."""
    manifest = f"of manifest {known.manifest!r}, " if known.manifest else ""
    # Work that was cancelled before it arrived has no job.
    job = f"job {known.job!r}, " if known.job else ""
    return f"Work {work} ({manifest}{job}group {known.group!r})"


def _expires_first(estimate: Estimate, start_by: datetime | None) -> Estimate:
    """Replace the estimate of work that expires before its start."""
    if estimate.at is None or start_by is None or estimate.at < start_by:
        return estimate
    turn = f"it expires before its turn comes, about {utc(estimate.at)} ({estimate.basis})"
    return Estimate(basis=turn)


def _outcome(answer: ExplainWorkAnswer, row: Any) -> str:
    match answer.outcome:
        case "cancelled" if row["cancel_reason"]:
            return f"cancelled ({row['cancel_reason']})"
        case "expired" if row["start_by"] is not None:
            return f"expired, because it had not begun by {utc(row['start_by'])}"
        case "coalesced":
            return "coalesced, because its manifest already had unsettled work"
    return str(answer.outcome)


def _dead_letter(letter: Any) -> str:
    failure = ": ".join(filter(None, (letter["failure_kind"], letter["failure_message"])))
    reason = f"{letter['reason']}, {failure}" if failure else letter["reason"]
    subject = f"Its dead letter {letter['id']} ({reason})"
    if letter["state"] != "awaiting":
        by = f" by {letter['actor']}" if letter["actor"] else ""
        return f"{subject} was {letter['state']}{by} at {utc(letter['resolved_at'])}."
    if letter["retry_requested_at"] is None:
        retry = f"'headway dead-letters retry {letter['id']}' runs it again"
        return f"{subject} is open: {retry}, and 'acknowledge' closes it."
    by, at = letter["retry_requested_by"] or "an operator", utc(letter["retry_requested_at"])
    start = "next, because its slot is free"
    if letter["waits_for"]:
        start = f"once work {letter['waits_for']} of its manifest has ended"
    return f"{subject} is to be retried, requested by {by} at {at}: it is queued again {start}."


def _run(row: Any) -> str:
    if row["started_at"] is not None:
        return f"runs since {utc(row['started_at'])} on worker {row['worker']!r}"
    ordered = f"is ordered since {utc(row['ordered_at'])}"
    if row["claimed_by"] is not None:
        return f"{ordered}; worker {row['claimed_by']!r} has claimed it and not started it yet"
    return f"{ordered}; no worker has claimed it yet"


def _cancel(row: Any) -> list[str]:
    if row["cancel_requested_at"] is None:
        return []
    reason = f" ({row['cancel_reason']})" if row["cancel_reason"] else ""
    return [f"It is being cancelled since {utc(row['cancel_requested_at'])}{reason}."]


def _reason(closed: GateStatus, row: Any) -> str:
    if closed.gate == "not_before" and row["runs"] and row["state"] == "waiting":
        failure = row["failure"] or {}
        last = ": ".join(filter(None, (failure.get("kind"), failure.get("message"))))
        failed = f"; its last run failed with {last}" if last else ""
        most = stored_terms(row["terms"])["retry"]["attempts"]
        number = f"attempt {row['attempts'] + 1} of {most}"
        if row["wait_reason"] != "retry":
            number += " again, because the last run does not count"
        return f"it is retried at {utc(row['not_before'])} ({number}{failed})"
    opens = f" until {utc(closed.opens_at)}" if closed.opens_at else ""
    return f"{closed.text}{opens}"


def _line(answer: ExplainWorkAnswer) -> list[str]:
    """Describe the holders of slots, the work ahead, the expiry and the estimate."""
    sentences = []
    if answer.holders:
        shown = [_holder(holder) for holder in answer.holders[:_HOLDERS_SHOWN]]
        more = answer.holders_in_all - len(shown)
        others = f" and {more} more" if more else ""
        sentences.append(f"The slots are held by {', '.join(shown)}{others}.")
    if answer.ahead is not None and answer.reason != "awaiting_gate":
        or_more = " or more" if answer.ahead_or_more else ""
        sentences.append(f"Work ahead of it: {answer.ahead}{or_more}.")
    if answer.reason == "start_by":
        return sentences
    sentences += _expiry(answer)
    if answer.estimated_start is not None:
        sentences.append(f"It may start about {utc(answer.estimated_start)} ({answer.estimate}).")
    elif answer.estimate:
        sentences.append(f"Start time unknown: {answer.estimate}.")
    return sentences


def _expiry(answer: ExplainWorkAnswer) -> list[str]:
    if answer.expires_at is None:
        return []
    return [f"It expires at {utc(answer.expires_at)} if it has not begun by then."]


def _holder(holder: SlotHolder) -> str:
    worker = f" on worker {holder.worker!r}" if holder.worker else ""
    owner = f"manifest {holder.manifest!r}" if holder.manifest else f"job {holder.job!r}"
    return f"run {holder.run} of {owner}{worker} since {utc(holder.since)}"
