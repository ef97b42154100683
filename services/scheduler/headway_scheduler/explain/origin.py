"""Describe work that the dispatcher does not know: not sent yet, refused, or settled long ago."""

from datetime import datetime
from typing import Any
from uuid import UUID

from headway_contract.work_queue import OriginAnswer
from headway_postgres_kit import Connection

from headway_scheduler.lookup import queries
from headway_scheduler.text import utc


async def origin(connection: Connection, work: UUID) -> OriginAnswer:
    """Return the state of a piece of work in the scheduler."""
    row = await connection.fetchrow(queries["origin"], work)
    if row is None:
        return OriginAnswer()
    state, text, since = _state(row)
    return OriginAnswer(
        state=state,
        text=text,
        manifest=row["manifest"],
        group=row["group_name"],
        job=row["job"],
        since=since,
    )


def _state(row: Any) -> tuple[str, str, datetime]:
    match row["enqueued_state"]:
        case "waiting":
            since = row["enqueued_at"]
            text = "waits for a scheduler to take it up"
            return "enqueued", f"was enqueued at {utc(since)} and {text}", since
        case "refused":
            since = row["enqueued_at"]
            remedy = "enqueue it again once that is fixed, see 'headway enqueued'"
            text = f"was enqueued at {utc(since)} and refused: {row['reason']}; {remedy}"
            return "refused", text, since
    if row["queued_at"] is None:
        since = row["settled_at"] or row["decided_at"]
        return "settled", f"was settled at {utc(since)}, and its details are deleted", since
    since = row["queued_at"]
    text = "is on its way to the dispatcher, which has not taken it in yet"
    return "on_its_way", f"was queued at {utc(since)} and {text}", since
