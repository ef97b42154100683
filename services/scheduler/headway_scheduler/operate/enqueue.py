"""Work that applications enqueue: taken up in batches, and queued or refused.

`headway.enqueue()` writes a row in the application's own transaction and says nothing to
anybody: a NOTIFY there would make all transactions that enqueue commit one after the other.
Instead this pass looks several times a second, which costs one look into an empty index.

A row is kept until its work is settled: should the broker lose the message, it can be told
again. What cannot be queued stays as well, refused, with its reason, and is looked at again
once its job is declared differently.
"""

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from headway.define.definitions import JobTerms
from headway.define.inputs import problem_of_input, schema_id
from headway_contract.work import RetryPolicy
from headway_decisions.capacity.keys import InvalidKey, render_key
from headway_postgres_kit import Clock, Connection, Database, note
from headway_relay import OutboxMessage
from headway_service_kit.passes import Wakeup
from headway_tracing import span
from msgspec import Struct

from headway_scheduler.declare.retired_jobs import retired
from headway_scheduler.fire.outbound_events import announce_enqueued
from headway_scheduler.metrics import TakenUp
from headway_scheduler.store import OUTBOX, enqueued, groups, works

logger = logging.getLogger(__name__)


class Queued(Struct, frozen=True, kw_only=True):
    """Work without a manifest, with all that its event says."""

    work: UUID
    cause: str
    job: str
    group: str
    priority: int
    input: Any
    # The id of the schema that the input was held against.
    input_schema: str | None
    queued_at: datetime
    not_before: datetime | None
    start_by: datetime | None
    retry: RetryPolicy
    timeout_seconds: float
    cancel_grace_seconds: float
    on_lost_contact: str
    concurrency_key: str | None
    concurrency_limit: int
    # The trace in which it was enqueued.
    traceparent: str | None


class Refused(Struct, frozen=True, kw_only=True):
    """Work that cannot be queued, and why."""

    work: UUID
    job: str
    reason: str


class Enqueue:
    """Takes up what applications enqueue."""

    def __init__(
        self, database: Database, *, clock: Clock, relay: Wakeup, batch: int = 500
    ) -> None:
        self._database = database
        self._clock = clock
        self._relay = relay
        self._batch = batch

    async def run_once(self) -> float | None:
        """Queue or refuse one batch; goes on at once while there is more."""
        async with self._database.acquire() as connection:
            if not await connection.fetchval(enqueued["any"]):
                return None
        async with self._database.transaction() as connection:
            rows = await connection.fetch(enqueued["take"], self._batch)
            now = await self._clock.now(connection)
            with span("enqueue", rows=len(rows)):
                verdicts = [
                    _refused_as_retired(row) or judge(row, now - self._clock.passed(row["age"]))
                    for row in rows
                ]
                await _record(connection, verdicts, now)
        if rows:
            self._relay.call()
        return 0.0 if len(rows) == self._batch else None

    async def look_again(self) -> float | None:
        """Let wait again what was refused, where its job is another by now."""
        async with self._database.acquire() as connection:
            status = await connection.execute(enqueued["look_again"])
        if status != "UPDATE 0":
            logger.info("work that was refused is looked at again: %s", status)
        return None


def _refused_as_retired(row: Any) -> Refused | None:
    """Refuse new work of a retired job; work that was queued before the job retired still runs."""
    if row["retired_at"] is None:
        return None
    return _refused(row, retired(row["job"], row["retired_at"]))


def judge(row: Any, enqueued_at: datetime) -> Queued | Refused:
    """Whether a row becomes work; when it was enqueued is told by the clock of the schedule."""
    if row["terms"] is None:
        return _refused(row, "its job is not declared: start the application that has it")
    try:
        terms = msgspec.json.decode(row["terms"], type=JobTerms)
        given = _read(row["input"])
    except (ValueError, RecursionError) as error:
        return _refused(row, f"it cannot be read: {error}")
    problem = problem_of_input(row["input_schema"], row["takes_input"], given)
    if problem is not None:
        return _refused(row, f"invalid_input: {problem}")
    group = row["group_name"] or terms.group or row["job"]
    try:
        key = _key(row, group, given)
    except InvalidKey as error:
        return _refused(row, f"invalid_key: {error}")
    not_before = row["not_before"] if row["delay"] is None else enqueued_at + row["delay"]
    return Queued(
        work=row["work_id"],
        cause=row["cause"],
        job=row["job"],
        group=group,
        priority=terms.priority if row["priority"] is None else row["priority"],
        input=given,
        input_schema=schema_id(row["input_schema"]),
        queued_at=enqueued_at,
        not_before=not_before,
        start_by=_start_by(row, not_before or enqueued_at),
        retry=terms.retry,
        timeout_seconds=terms.timeout_seconds,
        cancel_grace_seconds=terms.cancel_grace_seconds,
        on_lost_contact=terms.on_lost_contact,
        concurrency_key=key,
        concurrency_limit=row["concurrency_limit"],
        traceparent=row["traceparent"],
    )


def _key(row: Any, group: str, given: Any) -> str | None:
    """What its work shares with other work of the job, or `InvalidKey`."""
    if row["concurrency_key"] is None:
        return None
    return render_key(
        row["concurrency_key"], input=given, manifest=None, group=group, job=row["job"]
    )


def _start_by(row: Any, may_start_at: datetime) -> datetime | None:
    """When it expires: as it was enqueued, or else as its job says."""
    if row["start_by"] is not None or row["start_within_seconds"] is None:
        return row["start_by"]  # type: ignore[no-any-return]
    return may_start_at + timedelta(seconds=row["start_within_seconds"])


def _refused(row: Any, reason: str) -> Refused:
    return Refused(work=row["work_id"], job=row["job"], reason=reason)


def _read(text: str | None) -> Any:
    """An input as it will travel; numbers that no program can hold are refused."""
    if text is None:
        return None
    # A little deeper than it is, as deep as in its event.
    nested = msgspec.json.decode(f"[[[[{text}]]]]")
    given = nested[0][0][0][0]
    if msgspec.json.decode(msgspec.json.encode(nested)) != nested:
        raise ValueError("it holds a number that does not survive JSON: write it as text")
    return given


async def announce_again(
    connection: Connection, ids: Sequence[UUID], *, now: datetime
) -> list[OutboxMessage]:
    """The messages again of work that is outstanding and never came to the dispatcher.

    What its job, as it is by now, does not take is refused after all, and no longer waited for.
    """
    rows = await connection.fetch(enqueued["outstanding"], sorted(ids))
    verdicts = [judge(row, row["queued_at"]) for row in rows]
    refused = [one for one in verdicts if isinstance(one, Refused)]
    await connection.execute(works["remove"], [one.work for one in refused])
    await _refuse(connection, refused, now)
    return announce_enqueued([one for one in verdicts if isinstance(one, Queued)], now=now)


async def _record(
    connection: Connection, verdicts: Sequence[Queued | Refused], now: datetime
) -> None:
    queued = [one for one in verdicts if isinstance(one, Queued)]
    refused = [one for one in verdicts if isinstance(one, Refused)]
    if queued:
        await _know_groups(connection, sorted({one.group for one in queued}), now)
        nothing = [None] * len(queued)
        ids, causes = [one.work for one in queued], [one.cause for one in queued]
        await connection.execute(works["add"], ids, nothing, causes, [0] * len(queued), now)
        await OUTBOX.add(connection, announce_enqueued(queued, now=now))
        await connection.execute(
            enqueued["queued"],
            ids,
            [one.group for one in queued],
            [one.queued_at for one in queued],
            now,
        )
        note(*(TakenUp(one.job, "queued") for one in queued))
    await _refuse(connection, refused, now)


async def _refuse(connection: Connection, refused: Sequence[Refused], now: datetime) -> None:
    for one in refused:
        logger.error("work %s of job %s is refused: %s", one.work, one.job, one.reason)
    if refused:
        await connection.execute(
            enqueued["refuse"],
            [one.work for one in refused],
            [one.reason for one in refused],
            now,
        )
        note(*(TakenUp(one.job, "refused") for one in refused))


async def _know_groups(connection: Connection, names: list[str], now: datetime) -> None:
    """Give every group a row, so that operators can limit one that has no manifests."""
    await connection.execute(groups["ensure"], names, None, now)
