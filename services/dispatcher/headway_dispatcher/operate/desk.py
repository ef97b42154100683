"""The desk: every request and question of people and of the scheduler.

The reply to the next heartbeat of a worker contains the instruction to drain.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from headway_contract import subjects
from headway_contract.dead_letters import (
    AcknowledgeRequest,
    BeginCanaryRequest,
    CanaryRef,
    CanaryStatus,
    LetterResult,
    LettersChanged,
    LettersRequest,
    RetryRequest,
    StopCanaryRequest,
)
from headway_contract.fields import KeyedRequest, Moment
from headway_contract.fitting import misfits_of
from headway_contract.operations import (
    DrainAnswer,
    DrainRequest,
    DrainResult,
    SettingsAnswer,
    SettingsQuestion,
    SettingStatus,
)
from headway_contract.reconcile import ReconcileQuestion
from headway_contract.work_queue import (
    CancelAnswer,
    CancelRequest,
    InputAnswer,
    InputQuestion,
    WorkQuestion,
)
from headway_decisions.retries import dead_letters
from headway_errors import Invalid, RequestFailed, Unavailable
from headway_jetstream_kit import Broker
from headway_jetstream_kit.ask import ask
from headway_jetstream_kit.endpoints import serve, typed
from headway_postgres_kit import Connection, Database, storable
from headway_service_kit.settings_text import settings_in_effect
from msgspec import UNSET, Struct, UnsetType

from headway_dispatcher import store
from headway_dispatcher.events import operator_record
from headway_dispatcher.letters import canaries, letters
from headway_dispatcher.operate import cancel
from headway_dispatcher.operate.explain import explain
from headway_dispatcher.operate.reconcile import answer as reconcile_answer
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.store import HISTORY, IDEMPOTENCY, Times, letter_queries, workers
from headway_dispatcher.wakeups import Wakeups

_TIMEOUT = 3.0

Answer = TypeVar("Answer", bound=Struct)


@dataclass
class Desk:
    """The desk of one dispatcher process; all dispatchers share the requests."""

    database: Database
    broker: Broker
    own_settings: DispatcherSettings
    name: str
    wake: Wakeups

    async def listen(self) -> None:
        """Share the requests with the other dispatchers."""
        endpoint: Any = partial(typed, misfits=misfits_of)
        settings = self.own_settings
        explain_work = partial(explain, self.database, self.broker, settings)
        reconcile = partial(reconcile_answer, self.database, settings.history_days)
        await serve(
            self.broker,
            service="headway-dispatcher-desk",
            queue=subjects.DISPATCHERS,
            endpoints={
                subjects.RETRY_REQUEST: endpoint(RetryRequest, self.retry),
                subjects.ACKNOWLEDGE_REQUEST: endpoint(AcknowledgeRequest, self.acknowledge),
                subjects.BEGIN_CANARY_REQUEST: endpoint(BeginCanaryRequest, self.begin_canary),
                subjects.STOP_CANARY_REQUEST: endpoint(StopCanaryRequest, self.stop_canary),
                subjects.CANCEL_REQUEST: endpoint(CancelRequest, self.cancel),
                subjects.DRAIN_REQUEST: endpoint(DrainRequest, self.drain),
                subjects.DISPATCHER_SETTINGS_QUESTION: endpoint(SettingsQuestion, self.settings),
                subjects.EXPLAIN_WORK_QUESTION: endpoint(WorkQuestion, explain_work),
                subjects.RECONCILE_QUESTION: endpoint(ReconcileQuestion, reconcile),
            },
        )

    async def retry(self, request: RetryRequest) -> LettersChanged:
        """Run the work of dead letters again."""
        key = UNSET if request.input is UNSET else await self._check_input(request)
        order = letters.RetryOrder(actor=_actor(request), input=request.input, key=key)
        answer = await self._resolve_letters(request, partial(letters.retry, order=order))
        self.wake.gate.call()
        self.wake.relay.call()
        return answer

    async def acknowledge(self, request: AcknowledgeRequest) -> LettersChanged:
        """Acknowledge dead letters."""
        acknowledge = partial(letters.acknowledge, note=request.note, actor=_actor(request))
        answer = await self._resolve_letters(request, acknowledge)
        self.wake.relay.call()
        return answer

    async def _resolve_letters(
        self, request: LettersRequest, resolve: Callable[..., Awaitable[list[LetterResult]]]
    ) -> LettersChanged:
        """Resolve the named letters, or a page of those of a filter."""

        async def change(connection: Connection, times: Times) -> LettersChanged:
            ids, page = await _choose(connection, request, times.schedule)
            return LettersChanged(results=await resolve(connection, ids, times=times), **page)

        return await self._run_once(request, LettersChanged, change)

    async def begin_canary(self, request: BeginCanaryRequest) -> CanaryStatus:
        """Begin to retry the dead letters of a failure in steps."""
        begin = partial(canaries.begin, request=request, actor=_actor(request))
        begun = await self._run_once(request, CanaryRef, begin)
        async with self.database.acquire() as connection:
            status = await canaries.read_status(connection, begun.canary)
        self.wake.canaries.call()
        return status

    async def stop_canary(self, request: StopCanaryRequest) -> CanaryStatus:
        """Stop a canary; work under way continues."""
        canary, actor = request.canary, _actor(request)
        async with self._changing() as (connection, times):
            await canaries.stop(connection, canary, actor=actor, now=times.schedule)
            return await canaries.read_status(connection, canary)

    async def cancel(self, request: CancelRequest) -> CancelAnswer:
        """Cancel work."""
        change = partial(cancel.cancel, request=request)
        answer = await self._run_once(request, CancelAnswer, change)
        self.wake.cancels.call()
        self.wake.gate.call()
        self.wake.relay.call()
        return answer

    async def drain(self, request: DrainRequest) -> DrainAnswer:
        """Let workers claim no more orders."""
        return await self._run_once(request, DrainAnswer, partial(_drain, request=request))

    async def settings(self, _: SettingsQuestion) -> SettingsAnswer:
        """Return the settings of this process."""
        settings = [
            msgspec.convert(setting, SettingStatus, from_attributes=True)
            for setting in settings_in_effect(self.own_settings, os.environ)
        ]
        return SettingsAnswer(process=self.name, settings=settings)

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[tuple[Connection, Times]]:
        """Open a transaction that keeps tombstones away, and read the times."""
        async with self.database.transaction() as connection:
            await store.share_tombstone_lock(connection)
            yield connection, await store.read_times(connection, self.database)

    async def _run_once(
        self, request: KeyedRequest, kind: type[Answer], change: Callable[..., Awaitable[Answer]]
    ) -> Answer:
        """Make a change; a repeated request with the same key gets the same answer."""
        async with self._changing() as (connection, times):
            return await IDEMPOTENCY.run_once(
                connection, request, kind, lambda: change(connection, times=times), now=times.real
            )

    async def _check_input(self, request: RetryRequest) -> str | UnsetType | None:
        """Validate an edited input with the scheduler; returns its concurrency key."""
        if len(request.dead_letters) != 1 or request.filter is not None:
            raise Invalid("an edited input needs exactly one dead letter: name that one")
        [letter] = request.dead_letters
        async with self.database.acquire() as connection:
            row = await connection.fetchrow(letter_queries["job_of"], letter)
        if row is None:
            return UNSET  # the result says that it is unknown
        question = InputQuestion(
            job=row["job"],
            input=request.input,
            manifest_id=row["manifest_id"],
            group=row["group_name"],
        )
        try:
            answer = await ask(
                self.broker, subjects.INPUT_QUESTION, question, InputAnswer, timeout=_TIMEOUT
            )
        except RequestFailed as error:
            raise Unavailable(
                f"the input of job {question.job!r} cannot be checked, because no scheduler "
                f"answers ({error}): start one, or retry with the stored input"
            ) from error
        if answer.problem:
            raise Invalid(answer.problem)
        return answer.concurrency_key


async def _drain(connection: Connection, request: DrainRequest, *, times: Times) -> DrainAnswer:
    """Let workers claim no more orders; returns a result for each."""
    rows = await connection.fetch(workers["drain"], sorted(set(request.workers)))
    known = {row["name"]: row for row in rows}
    type_, at = "headway.worker.drain_asked.v1", times.schedule
    records = [
        operator_record(type_, name, request.actor, at, {"worker": name})
        for name, row in known.items()
        if not row["drained_before"]
    ]
    await HISTORY.append(connection, records, now=times.real)
    return DrainAnswer(results=[_drain_result(name, known.get(name)) for name in request.workers])


def _drain_result(worker: str, row: Any) -> DrainResult:
    if row is None:
        text = f"there is no worker {worker}: see 'headway workers'"
        return DrainResult(worker=worker, result="unknown", text=text)
    if row["drained_before"]:
        word, text = "already_draining", "drains already"
    else:
        word, text = "asked", "takes no more orders, finishes its runs, and ends"
    return DrainResult(
        worker=worker, result=word, last_heard_at=row["last_heard_at"], text=f"{worker} {text}"
    )


async def _choose(
    connection: Connection, request: LettersRequest, now: datetime
) -> tuple[list[UUID], dict[str, Any]]:
    """Return the named letters, or the oldest open ones of a filter with the end of their page."""
    if request.filter is None:
        if not request.dead_letters:
            raise Invalid("no dead letter is named: name some, or give a filter")
        return request.dead_letters, {}
    filter_ = request.filter
    if request.dead_letters or filter_.state not in (None, "awaiting"):
        raise Invalid("give either ids or a filter of open dead letters (state awaiting)")
    before = filter_.created_before or now
    print_ = filter_.fingerprint
    rows = await connection.fetch(
        letter_queries["chosen"],
        filter_.group,
        filter_.job,
        filter_.manifest,
        *((None, None) if print_ is None else dead_letters.parse_fingerprint(print_)),
        filter_.created_after,
        before,
        *_read_place(request.after),
        request.limit + 1,
    )
    page = rows[: request.limit]
    last = f"{page[-1]['created_at'].isoformat()}/{page[-1]['id']}" if page else ""
    more = len(rows) > request.limit
    return [row["id"] for row in page], {"last": last, "more": more, "created_before": before}


def _read_place(after: str) -> tuple[datetime | None, UUID | None]:
    """Read the time and id after which a page begins; `None` for the first page."""
    if not after:
        return None, None
    at, _, name = after.partition("/")
    try:
        return msgspec.convert(at, Moment), UUID(name)
    except ValueError as error:
        raise Invalid(
            f"after={after!r} is not a place in a list: send 'last' of the previous answer"
        ) from error


def _actor(request: LettersRequest | BeginCanaryRequest | StopCanaryRequest) -> str:
    return storable(request.actor) or "unknown"
