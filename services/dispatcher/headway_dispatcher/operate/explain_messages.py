"""How work stands, in a paragraph for people."""

from datetime import datetime
from typing import Any
from uuid import UUID

from headway_contract.work_queue import ExplainWorkAnswer, GateStatus, OriginAnswer, SlotHolder

from headway_dispatcher.operate.wait_estimate import Estimate

_TOLD_HOLDERS = 3


def sentence(answer: ExplainWorkAnswer, row: Any, letter: Any = None) -> str:
    """The answer in words; `letter` is the dead letter that the work has become."""
    begin = _named(answer.work, answer)
    if answer.state == "settled":
        settled = f"{begin} is settled since {_at(row['settled_at'])}: {_outcome(answer, row)}."
        return " ".join([settled, *_dead(letter)])
    if answer.state == "dispatched":
        return " ".join([f"{begin} {_running(row)}.", *_cancelled(row), *_expires(answer)])
    closed = [gate for gate in answer.gates if not gate.open]
    why = _why(closed[0], row) if closed else "nothing is in its way"
    also = "; ".join(_why(gate, row) for gate in closed[1:])
    told = [f"{begin} waits since {_at(row['queued_at'])}: {why}."]
    told += [f"Also in its way: {also}."] if also and answer.reason != "start_by" else []
    return " ".join([*told, *_more(answer)])


def unheard(work: UUID, origin: OriginAnswer) -> str:
    """How work stands that only the scheduler knows of."""
    return f"{_named(work, origin)} {origin.text}."


def _named(work: UUID, told: ExplainWorkAnswer | OriginAnswer) -> str:
    whose = f"of manifest {told.manifest!r}, " if told.manifest else ""
    # What was cancelled before it came has no job yet.
    job = f"job {told.job!r}, " if told.job else ""
    return f"Work {work} ({whose}{job}group {told.group!r})"


def before_its_turn(estimate: Estimate, start_by: datetime | None) -> Estimate:
    """An estimate for work that may come too late: what is too late is no start."""
    if estimate.at is None or start_by is None or estimate.at < start_by:
        return estimate
    turn = f"it expires before its turn comes, about {_at(estimate.at)} ({estimate.basis})"
    return Estimate(basis=turn)


def _outcome(answer: ExplainWorkAnswer, row: Any) -> str:
    match answer.outcome:
        case "cancelled" if row["cancel_reason"]:
            return f"cancelled ({row['cancel_reason']})"
        case "expired" if row["start_by"] is not None:
            return f"expired, because it had not begun by {_at(row['start_by'])}"
        case "coalesced":
            return "coalesced, because other work of its manifest was under way already"
    return str(answer.outcome)


def _dead(letter: Any) -> list[str]:
    """What its dead letter waits for, if it has become one."""
    if letter is None:
        return []
    failed = ": ".join(filter(None, (letter["failure_kind"], letter["failure_message"])))
    named = f"Its dead letter {letter['id']} ({letter['reason']}{f', {failed}' if failed else ''})"
    if letter["state"] != "awaiting":
        by = f" by {letter['actor']}" if letter["actor"] else ""
        return [f"{named} was {letter['state']}{by} at {_at(letter['resolved_at'])}."]
    if letter["retry_requested_at"] is None:
        remedy = f"'headway dead-letters retry {letter['id']}' runs it again"
        return [f"{named} waits for somebody: {remedy}, and 'acknowledge' lets it be."]
    by = letter["retry_requested_by"] or "somebody"
    taken = f"once work {letter['waits_for']} of its manifest has ended"
    taken = taken if letter["waits_for"] else "next, for its slot is free"
    asked = f"is to be retried, as {by} asked at {_at(letter['retry_requested_at'])}"
    return [f"{named} {asked}: it is queued again {taken}."]


def _running(row: Any) -> str:
    if row["started_at"] is not None:
        return f"runs since {_at(row['started_at'])} on worker {row['worker']!r}"
    ordered = f"is ordered since {_at(row['ordered_at'])}"
    if row["claimed_by"] is not None:
        return f"{ordered}, and worker {row['claimed_by']!r} has claimed it and not begun with it"
    return f"{ordered}, and no worker has begun with it yet"


def _cancelled(row: Any) -> list[str]:
    if row["cancel_requested_at"] is None:
        return []
    why = f" ({row['cancel_reason']})" if row["cancel_reason"] else ""
    return [f"It is being cancelled since {_at(row['cancel_requested_at'])}{why}."]


def _why(closed: GateStatus, row: Any) -> str:
    if closed.gate == "not_before" and row["runs"] and row["state"] == "waiting":
        return f"it is tried again at {_at(closed.opens_at)} ({row['wait_reason']}{_failed(row)})"
    opens = f" until {_at(closed.opens_at)}" if closed.opens_at else ""
    return f"{closed.text}{opens}"


def _failed(row: Any) -> str:
    """How its last run ended."""
    failure = row["failure"] or {}
    said = ": ".join(filter(None, (failure.get("kind"), failure.get("message"))))
    return f"; its last run failed with {said}" if said else ""


def _more(answer: ExplainWorkAnswer) -> list[str]:
    said = []
    if answer.holders:
        told = ", ".join(_holder(one) for one in answer.holders[:_TOLD_HOLDERS])
        rest = answer.holders_in_all - min(_TOLD_HOLDERS, len(answer.holders))
        said.append(f"The slots are held by {told}{f' and {rest} more' if rest else ''}.")
    if answer.ahead is not None and answer.reason != "awaiting_gate":
        said.append(f"Before it {_line(answer)}.")
    if answer.reason == "start_by":
        return said
    said += _expires(answer)
    if answer.estimated_start is not None:
        said.append(f"It may start about {_at(answer.estimated_start)} ({answer.estimate}).")
    elif answer.estimate:
        said.append(f"When it starts is not known: {answer.estimate}.")
    return said


def _expires(answer: ExplainWorkAnswer) -> list[str]:
    if answer.expires_at is None:
        return []
    return [f"It expires at {_at(answer.expires_at)} if it has not begun by then."]


def _line(answer: ExplainWorkAnswer) -> str:
    if answer.ahead == 0:
        return "comes nobody"
    if answer.ahead == 1:
        return "comes 1 other"
    return f"come {answer.ahead} others{' or more' if answer.ahead_or_more else ''}"


def _holder(one: SlotHolder) -> str:
    where = f" on worker {one.worker!r}" if one.worker else ""
    whose = f"manifest {one.manifest!r}" if one.manifest else f"job {one.job!r}"
    return f"run {one.run} of {whose}{where} since {_at(one.since)}"


def _at(moment: datetime | None) -> str:
    return "?" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC"
