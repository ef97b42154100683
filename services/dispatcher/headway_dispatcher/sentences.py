"""How work stands, in a paragraph for people."""

from datetime import datetime
from typing import Any

from headway_contract.waiting import ExplainWorkAnswer, SlotHolder

_TOLD_HOLDERS = 3


def sentence(answer: ExplainWorkAnswer, row: Any) -> str:
    """The answer in words."""
    whose = f"of manifest {answer.manifest!r}, " if answer.manifest else ""
    begin = f"Work {answer.work} ({whose}job {answer.job!r}, group {answer.group!r})"
    if answer.state == "settled":
        return f"{begin} is settled since {_at(row['settled_at'])}: {answer.outcome}."
    if answer.state == "dispatched":
        return " ".join([f"{begin} {_running(row)}.", *_expires(answer)])
    waits = f"{begin} waits since {_at(row['queued_at'])}: {_why(answer, row)}."
    return " ".join([waits, *_more(answer)])


def _running(row: Any) -> str:
    if row["started_at"] is not None:
        return f"runs since {_at(row['started_at'])} on worker {row['worker']!r}"
    return f"is ordered since {_at(row['ordered_at'])}, and no worker has begun with it yet"


def _why(answer: ExplainWorkAnswer, row: Any) -> str:
    closed = next((gate for gate in answer.gates if not gate.open), None)
    if closed is None:
        return "nothing is in its way"
    opens = f" until {_at(closed.opens_at)}" if closed.opens_at else ""
    again = f" ({row['wait_reason']})" if answer.runs and closed.gate == "not_before" else ""
    return f"{closed.text}{opens}{again}"


def _more(answer: ExplainWorkAnswer) -> list[str]:
    said = []
    if answer.holders:
        told = ", ".join(_holder(one) for one in answer.holders[:_TOLD_HOLDERS])
        rest = answer.holders_in_all - min(_TOLD_HOLDERS, len(answer.holders))
        said.append(f"The slots are held by {told}{f' and {rest} more' if rest else ''}.")
    if answer.ahead is not None and answer.reason != "awaiting_gate":
        said.append(f"Before it {_line(answer)}.")
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
