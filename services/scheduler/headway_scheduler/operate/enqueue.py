"""Enqueued work: take it up in batches and queue or refuse it; enqueue and dismiss by request.

`headway.enqueue()` writes a row in the application's own transaction without a NOTIFY, which would
serialize the commits of all transactions that enqueue. Instead the pass polls several times a
second, at the cost of one look into an empty index.

A row is kept until its work is settled, so that a lost message can be republished. Refused work
stays with its reason and is judged again once its job is declared differently.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from headway.define.definitions import JobTerms
from headway.define.inputs import problem_of_input
from headway_contract.work import WorkQueued, WorkTerms, terms_of
from headway_contract.work_queue import DismissRequest, EnqueueAnswer, EnqueueRequest
from headway_decisions.capacity.keys import InvalidKey
from headway_errors import Conflict, Invalid, NotFound, Rejected
from headway_postgres_kit import Connection, Database, StatementBatch, driver, note
from headway_relay import Handover, OutboxMessage, stamped
from headway_tracing import span
from headway_tracing.log import get_logger

from headway_scheduler import store
from headway_scheduler.declare.checks import retired_message
from headway_scheduler.fire.decide import announce_work, concurrency_key, read_schema
from headway_scheduler.metrics import ENQUEUED, Sample

log = get_logger(__name__)

# Errors with which headway.enqueue() refuses a request; any other is a fault of the service.
_REFUSALS: dict[type[Exception], type[Rejected]] = {
    driver.UndefinedObjectError: NotFound,
    driver.InvalidParameterValueError: Invalid,
    driver.UniqueViolationError: Conflict,
    driver.ObjectNotInPrerequisiteStateError: Conflict,
}

# A row of enqueued work, and its work or the reason to refuse it.
Verdict = tuple[Any, WorkQueued | str]


@dataclass(frozen=True)
class Enqueue:
    """The pass that takes up enqueued work."""

    database: Database
    relay: Handover
    batch: int = 500

    async def run_once(self) -> float | None:
        """Queue or refuse one batch; continues at once while there is more."""
        async with self.database.acquire() as connection:
            if not await connection.fetchval(store.enqueued["any"]):
                return None
        clock = self.database.clock
        async with self.database.transaction() as connection:
            rows = await connection.fetch(store.enqueued["take"], self.batch)
            now = await clock.now(connection)
            with span("enqueue", rows=len(rows)):
                # Work that was queued before its job retired still runs, new work does not.
                verdicts: list[Verdict] = [
                    (row, retired_message(row["job"], row["retired_at"]))
                    if row["retired_at"] is not None
                    else (row, _judge(row, now - clock.passed(row["age"])))
                    for row in rows
                ]
                messages = stamped(await _record(connection, verdicts, now))
        self.relay.hand(messages)
        return 0.0 if len(rows) == self.batch else None

    async def look_again(self) -> float | None:
        """Judge refused work again whose job was declared differently."""
        async with self.database.acquire() as connection:
            status = await connection.execute(store.enqueued["look_again"])
        if status != "UPDATE 0":
            log.info("refused work waits again", works=status.removeprefix("UPDATE "))
        return None


def _judge(row: Any, enqueued_at: datetime) -> WorkQueued | str:
    """Return the work of a row, or the reason to refuse it; `enqueued_at` is schedule time."""
    if row["terms"] is None:
        return "its job is not declared: start the application that has it"
    try:
        terms = msgspec.json.decode(row["terms"], type=JobTerms)
        work_input = _read_input(row["input"])
    except (ValueError, RecursionError) as error:
        return f"it cannot be read: {error}"
    input_schema, input_schema_id = read_schema(row["input_schema"])
    problem = problem_of_input(input_schema, row["takes_input"], work_input)
    if problem is not None:
        return f"invalid_input: {problem}"
    job = row["job"]
    group = row["group_name"] or terms.group or job
    try:
        key = concurrency_key(
            terms.concurrency_key, input=work_input, manifest=None, group=group, job=job
        )
    except InvalidKey as error:
        return f"invalid_key: {error}"
    not_before = row["not_before"] if row["delay"] is None else enqueued_at + row["delay"]
    start_by = row["start_by"]
    if start_by is None and terms.start_within_seconds is not None:
        start_by = (not_before or enqueued_at) + timedelta(seconds=terms.start_within_seconds)
    return WorkQueued(
        work=row["work_id"],
        cause=row["cause"],
        job=job,
        group=group,
        input=work_input,
        input_schema=input_schema_id,
        queued_at=enqueued_at,
        not_before=not_before,
        terms=WorkTerms(**terms_of(terms)),
        priority=terms.priority if row["priority"] is None else row["priority"],
        start_by=start_by,
        concurrency_key=key,
        explicit=True,
    )


def _read_input(text: str | None) -> Any:
    """Decode an input; raises `ValueError` for numbers that JSON does not preserve."""
    if text is None:
        return None
    # As deeply nested as it will be in its event.
    nested = msgspec.json.decode(f"[[[[{text}]]]]")
    if msgspec.json.decode(msgspec.json.encode(nested)) != nested:
        raise ValueError("it holds a number that does not survive JSON: write it as text")
    return nested[0][0][0][0]


async def republish_enqueued(
    connection: Connection, ids: Sequence[UUID], *, now: datetime
) -> list[OutboxMessage]:
    """Build the messages again of outstanding work that the dispatcher never received.

    Work that its job does not accept any more is refused, and no longer outstanding.
    """
    rows = await connection.fetch(store.enqueued["outstanding"], sorted(ids))
    verdicts: list[Verdict] = [(row, _judge(row, row["queued_at"])) for row in rows]
    refused = await _refuse(connection, verdicts, now)
    await connection.execute(store.works["remove"], refused)
    return announce_work(_queued(verdicts), now=now)


def _queued(verdicts: Sequence[Verdict]) -> list[tuple[WorkQueued, str | None]]:
    """Return the work that is queued, each with the trace in which it was enqueued."""
    return [(work, row["traceparent"]) for row, work in verdicts if not isinstance(work, str)]


async def _record(
    connection: Connection, verdicts: Sequence[Verdict], now: datetime
) -> list[OutboxMessage]:
    """Queue or refuse work; returns the messages that announce it."""
    queued = _queued(verdicts)
    messages = announce_work(queued, now=now)
    if queued:
        writes = StatementBatch()
        new = [work for work, _ in queued]
        ids, causes, names, dates = store.columns(new, "work", "cause", "group", "queued_at")
        # Every group has a row, so that operators can limit a group without manifests.
        writes.add(store.groups["ensure"], sorted(set(names)), None, now)
        make_outstanding(writes, ids, causes, names, dates, now=now)
        store.OUTBOX.add_to(writes, messages)
        await writes.send(connection)
        note(*(Sample(ENQUEUED, (work.job, "queued")) for work in new))
    await _refuse(connection, verdicts, now)
    return messages


def make_outstanding(
    writes: StatementBatch,
    ids: Sequence[UUID],
    causes: Sequence[str],
    groups: Sequence[str],
    queued_at: Sequence[datetime],
    *,
    now: datetime,
) -> None:
    """Make enqueued work outstanding, as part of a batch of statements."""
    slots = [0] * len(ids)
    writes.add(store.works["add"], ids, [None] * len(ids), causes, slots, now)
    writes.add(store.enqueued["queued"], ids, groups, queued_at, now)


async def _refuse(connection: Connection, verdicts: Sequence[Verdict], now: datetime) -> list[UUID]:
    """Refuse work with the reasons among the verdicts; returns that work."""
    refused = [(row, reason) for row, reason in verdicts if isinstance(reason, str)]
    for row, reason in refused:
        log.error("enqueued work refused", work=row["work_id"], job=row["job"], reason=reason)
        note(Sample(ENQUEUED, (row["job"], "refused")))
    works = [row["work_id"] for row, _ in refused]
    if refused:
        reasons = [reason for _, reason in refused]
        await connection.execute(store.enqueued["refuse"], works, reasons, now)
    return works


async def enqueue(
    connection: Connection, request: EnqueueRequest, *, now: datetime
) -> EnqueueAnswer:
    """Enqueue work as an application would; an input that does not fit is rejected at once."""
    for job in await connection.fetch(store.manifests["jobs"], [request.job]):
        problem = problem_of_input(job["input_schema"], job["takes_input"], request.input)
        if problem is not None:
            raise Invalid(f"the input does not fit job {request.job!r}: {problem}")
    delay = request.delay_seconds
    # Two requests at once with the same key may both be reported as new.
    known = request.key is not None and await connection.fetchval(
        store.enqueued["is_known"], request.job, request.key
    )
    try:
        work = await connection.fetchval(
            store.enqueued["enqueue"],
            request.job,
            request.input,
            request.group,
            request.priority,
            None if delay is None else timedelta(seconds=delay),
            request.not_before,
            request.start_by,
            request.key,
            request.traceparent,
        )
    except tuple(_REFUSALS) as error:
        refusal: Any = error
        parts = (refusal.message.removeprefix("headway: "), refusal.hint)
        raise _REFUSALS[type(error)](": ".join(filter(None, parts))) from error
    if known:
        text = f"{request.job}: the key {request.key!r} enqueued it before, as work {work}"
        return EnqueueAnswer(work=work, text=text)
    entry = (str(work), {"job": request.job, "key": request.key})
    await store.audit(
        connection, "headway.work.enqueued.v1", store.operator(request), [entry], now=now
    )
    return EnqueueAnswer(work=work, text=f"{request.job}: enqueued as work {work}")


async def dismiss(connection: Connection, request: DismissRequest, *, now: datetime) -> str:
    """Delete refused work; the audit keeps the reason."""
    row = await connection.fetchrow(store.enqueued["lock_refused"], request.work)
    if row is None:
        raise NotFound(
            f"work {request.work} was not refused, or not enqueued at all: see 'headway enqueued'"
        )
    await connection.execute(store.enqueued["dismiss"], request.work)
    data = {"job": row["job"], "key": row["key"], "reason": row["reason"]}
    kind, entry = "headway.work.dismissed.v1", (str(request.work), data)
    await store.audit(connection, kind, store.operator(request), [entry], now=now)
    return f"work {request.work} of job {row['job']}: deleted"
