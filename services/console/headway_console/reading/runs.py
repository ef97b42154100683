"""Runs: lists of them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from headway_contract.dispatching import RunStateAsked
from headway_postgres_kit import Connection, Queries
from msgspec import Struct

from headway_console.reading.pages import Page, like, page_of, searched, time_and_id

queries = Queries("headway_console.reading", "sql/runs.sql")

# Among how many of the newest a search without an index looks before it says how far it came:
# what takes some 25 ms. Text has to be brought up and read, the name of a worker stands in the run.
LOOKED_THROUGH = 10_000
LOOKED_THROUGH_FOR_TEXT = 4_000

_LIVE = ("pending", "in_progress")
_LIST = "runs"


class RunFilter(Struct, frozen=True, kw_only=True):
    """Which runs are meant; what is left out does not matter.

    `text` is looked for in the error (its kind and message) and in the input, or in one of them;
    it and the worker are looked for among the newest runs that fit the rest. An error can only be
    in runs that failed, so with `text_in="error"` those are all that is looked through.
    """

    state: RunStateAsked | None = None
    group: str | None = None
    job: str | None = None
    manifest: UUID | None = None
    worker: str | None = None
    since: datetime | None = None
    before: datetime | None = None
    text: str | None = None
    text_in: Literal["anywhere", "error", "input"] = "anywhere"

    @property
    def among(self) -> int | None:
        """Among how many to look; none if an index answers all of it."""
        if self.text:
            return LOOKED_THROUGH_FOR_TEXT
        return LOOKED_THROUGH if self.worker else None


class RunRow(Struct, frozen=True, kw_only=True):
    """A run in a list."""

    run: UUID
    work: UUID
    round: int
    attempt: int
    manifest: str | None
    group: str
    job: str
    state: str
    cause: str
    worker: str | None
    host: str | None
    due_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    failure_kind: str | None
    failure_message: str | None
    cancel_reason: str | None
    percent: float | None = None
    message: str | None = None


async def page_of_runs(
    connection: Connection, asked: RunFilter, *, cursor: str | None = None, limit: int = 50
) -> Page[RunRow]:
    """A page of runs, the newest first."""
    place = time_and_id(_LIST, cursor)
    live = await _live(connection, asked, place, limit + 1)
    ended: Sequence[Any] = ()
    reached = None
    state = "failed" if asked.text and asked.text_in == "error" else asked.state
    if asked.state not in _LIVE and asked.state in (None, state):
        ended = await _ended(connection, asked, state, place, limit + 1)
        if asked.among is not None and len(ended) <= limit:
            reached = await connection.fetchrow(
                queries["reached"],
                *(state, asked.group, asked.job, asked.manifest, asked.since, asked.before),
                *place,
                asked.among,
            )
    if reached is not None:  # what is further back comes with the next page
        live = [row for row in live if _newest_first(row) >= _newest_first(reached)]
    rows = sorted([*live, *ended], key=_newest_first, reverse=True)
    page = page_of(_LIST, rows, limit, run_row, "created_at", "run_id")
    return searched(page, _LIST, reached, "created_at", "run_id")


async def _live(
    connection: Connection, asked: RunFilter, place: tuple[Any, Any], most: int
) -> Sequence[Any]:
    """Runs that have not ended; they have no error yet."""
    if asked.state not in (None, *_LIVE) or (asked.text and asked.text_in == "error"):
        return ()
    return await connection.fetch(
        queries["live"],
        *(asked.state, asked.group, asked.job, asked.manifest, asked.worker),
        *(asked.since, asked.before, *place, like(asked.text), most),
    )


async def _ended(
    connection: Connection,
    asked: RunFilter,
    state: str | None,
    place: tuple[Any, Any],
    most: int,
) -> Sequence[Any]:
    pattern = like(asked.text)
    return await connection.fetch(
        queries["ended"],
        *(state, asked.group, asked.job, asked.manifest, asked.worker, asked.since, asked.before),
        *place,
        pattern if asked.text_in != "input" else None,
        pattern if asked.text_in != "error" else None,
        asked.among or most,
        most,
    )


def _newest_first(row: Any) -> tuple[datetime, UUID]:
    return row["created_at"], row["run_id"]


def run_row(row: Any) -> RunRow:
    """A run out of its row."""
    progress = row["progress"] or {}
    return RunRow(
        run=row["run_id"],
        work=row["work_id"],
        group=row["group_name"],
        percent=progress.get("percent"),
        message=progress.get("message"),
        **{
            name: row[name]
            for name in (
                *("round", "attempt", "manifest", "job", "state", "cause", "worker", "host"),
                *("due_at", "created_at", "started_at", "finished_at", "failure_kind"),
                *("failure_message", "cancel_reason"),
            )
        },
    )
