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
from headway_contract.work import WorkQueued, WorkTerms, terms_of
from headway_decisions.capacity.keys import InvalidKey, render_key
from headway_postgres_kit import Clock, Connection, Database, note
from headway_relay import OutboxMessage
from headway_service_kit.passes import Wakeup
from headway_tracing import span
from msgspec import Struct

from headway_scheduler.declare.checks import retired_message
from headway_scheduler.fire.outbound_events import announce_enqueued
from headway_scheduler.metrics import TakenUp
from headway_scheduler.store import OUTBOX, enqueued, groups, works

logger = logging.getLogger(__name__)


class Queued(Struct, frozen=True, kw_only=True):
    """Work without a manifest, and the trace in which it was enqueued."""

    event: WorkQueued
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
    return _refused(row, retired_message(row["job"], row["retired_at"]))


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
        key = _key(row["job"], terms.concurrency_key, group, given)
    except InvalidKey as error:
        return _refused(row, f"invalid_key: {error}")
    not_before = row["not_before"] if row["delay"] is None else enqueued_at + row["delay"]
    event = WorkQueued(
        work=row["work_id"],
        cause=row["cause"],
        job=row["job"],
        group=group,
        input=given,
        input_schema=schema_id(row["input_schema"]),
        queued_at=enqueued_at,
        not_before=not_before,
        terms=WorkTerms(**terms_of(terms)),
        priority=terms.priority if row["priority"] is None else row["priority"],
        start_by=row["start_by"] or _start_by(terms, not_before or enqueued_at),
        concurrency_key=key,
        explicit=True,
    )
    return Queued(event=event, traceparent=row["traceparent"])


def _key(job: str, template: str | None, group: str, given: Any) -> str | None:
    """What its work shares with other work of the job, or `InvalidKey`."""
    if template is None:
        return None
    return render_key(template, input=given, manifest=None, group=group, job=job)


def _start_by(terms: WorkTerms, may_start_at: datetime) -> datetime | None:
    """When work of the job expires that states no time itself."""
    if terms.start_within_seconds is None:
        return None
    return may_start_at + timedelta(seconds=terms.start_within_seconds)


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


async def republish_enqueued(
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
    queued = [verdict for verdict in verdicts if isinstance(verdict, Queued)]
    return announce_enqueued([(one.event, one.traceparent) for one in queued], now=now)


async def _record(
    connection: Connection, verdicts: Sequence[Queued | Refused], now: datetime
) -> None:
    queued = [verdict for verdict in verdicts if isinstance(verdict, Queued)]
    refused = [verdict for verdict in verdicts if isinstance(verdict, Refused)]
    works_queued = [verdict.event for verdict in queued]
    if works_queued:
        await _know_groups(connection, sorted({work.group for work in works_queued}), now)
        nothing = [None] * len(queued)
        ids, causes = [work.work for work in works_queued], [work.cause for work in works_queued]
        await connection.execute(works["add"], ids, nothing, causes, [0] * len(queued), now)
        messages = announce_enqueued([(one.event, one.traceparent) for one in queued], now=now)
        await OUTBOX.add(connection, messages)
        await connection.execute(
            enqueued["queued"],
            ids,
            [work.group for work in works_queued],
            [work.queued_at for work in works_queued],
            now,
        )
        note(*(TakenUp(work.job, "queued") for work in works_queued))
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
