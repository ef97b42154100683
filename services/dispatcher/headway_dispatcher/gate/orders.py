"""Orders of admitted work, their messages, and their history records."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec
from headway_clock import new_id, new_token
from headway_contract import encode, subjects
from headway_contract.orders import OrderedRun, RunDispatched
from headway_contract.work import RunTerms, WorkTerms, terms_of
from headway_decisions.capacity.capacity import Admitted, Verdict
from headway_history import Record
from headway_relay import OutboxMessage
from headway_tracing import CONTEXTS_APART, is_recording, span, trace_id, traceparent
from msgspec import Struct, structs

from headway_dispatcher.events import order_of, own_event
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.store import SOURCE

# Time beyond timeout and grace in which a worker may report the end of a run itself, as in the
# function `dispatcher.max_run_seconds`.
_LENIENCE = 10.0


class WaitingWork(Struct, frozen=True):
    """Ready work, with everything that its order needs; its input is JSON that is not decoded.

    Its fields are in the order in which the statement reads them.
    """

    id: UUID
    round: int
    manifest: str | None
    group: str
    job: str
    input: msgspec.Raw | None
    input_schema: str | None
    cause: str
    due_at: datetime | None
    start_by: datetime | None
    terms: WorkTerms
    attempts: int
    traceparent: str | None
    concurrency_key: str | None
    key_active: int
    manifest_disabled: bool
    exclusive_lease: bool

    @property
    def is_last_attempt(self) -> bool:
        """Whether its retry policy allows no attempt after this one."""
        return self.attempts + 1 >= self.terms.retry.attempts

    @property
    def max_run_seconds(self) -> float:
        """Seconds from the start of the run until it must have ended."""
        return self.terms.timeout_seconds + self.terms.cancel_grace_seconds + _LENIENCE


# An order with its admitted work, in the order of its runs.
Order = tuple[RunDispatched, list[WaitingWork]]


def orders_of(
    waiting: Sequence[WaitingWork], verdicts: Sequence[Verdict], settings: DispatcherSettings
) -> list[Order]:
    """Return an order for each admitted lease."""
    leases: dict[int, list[WaitingWork]] = {}
    for work, verdict in zip(waiting, verdicts, strict=True):
        if isinstance(verdict, Admitted):
            leases.setdefault(verdict.lease, []).append(work)
    traced = is_recording()
    orders = []
    for works in leases.values():
        order = order_of(
            settings,
            [_run(work, traced=traced) for work in works],
            lease=new_id(),
            token=new_token(),
            job=works[0].job,
            on_lost_contact=works[0].terms.on_lost_contact,
        )
        orders.append((order, works))
    return orders


def _run(work: WaitingWork, *, traced: bool) -> OrderedRun:
    run, context = new_id(), work.traceparent
    if traced and context is not None:
        with span("admit", parent=context, work=str(work.id), run=str(run)):
            context = traceparent() or context
    return OrderedRun(
        **terms_of(work.terms, RunTerms),
        run=run,
        work=work.id,
        round=work.round,
        attempt=work.attempts + 1,
        attempts=work.terms.retry.attempts,
        manifest=work.manifest,
        group=work.group,
        cause=work.cause,
        due_at=work.due_at,
        input=work.input,
        input_schema=work.input_schema,
        traceparent=context,
    )


def message_of(order: RunDispatched, now: datetime) -> OutboxMessage:
    """Return the message of an order; the outbox does not store its body."""
    traces = [run.traceparent for run in order.runs if run.traceparent]
    context = traces[0] if traces else None
    published = own_event(order, id=order.lease, subject=order.lease, time=now, traceparent=context)
    return OutboxMessage(
        message_id=str(order.lease),
        subject=subjects.order(order.job, order.lease),
        body=encode(published),
        traceparent=CONTEXTS_APART.join(traces) or None,
        stored_body=False,
    )


class _OrderedFacts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run as history has it: without the input, which the record of the work has."""

    run: UUID
    work: UUID
    round: int
    attempt: int
    manifest: str | None = None
    group: str
    cause: str
    due_at: datetime | None = None
    max_run_seconds: float
    trace_id: str | None = None


def history_record(order: RunDispatched, works: Sequence[WaitingWork], now: datetime) -> Record:
    """Return the history record of an order, without the secret token; several runs are packed."""
    runs = [_ordered_facts(*pair) for pair in zip(works, order.runs, strict=True)]
    alone = runs[0] if len(runs) == 1 else None
    facts = {"runs": runs} if alone is None else structs.asdict(alone)
    return Record(
        event_id=str(order.lease),
        type=RunDispatched.type,
        subject=str(order.lease if alone is None else alone.run),
        source=SOURCE,
        occurred_at=now,
        data={"lease": order.lease, "job": order.job, **facts},
        work=None if alone is None else alone.work,
        run=None if alone is None else alone.run,
        lease=order.lease,
    )


def _ordered_facts(work: WaitingWork, run: OrderedRun) -> _OrderedFacts:
    return _OrderedFacts(
        run=run.run,
        work=work.id,
        round=run.round,
        attempt=run.attempt,
        manifest=work.manifest,
        group=work.group,
        cause=work.cause,
        due_at=work.due_at,
        max_run_seconds=work.max_run_seconds,
        trace_id=trace_id(run.traceparent),
    )
