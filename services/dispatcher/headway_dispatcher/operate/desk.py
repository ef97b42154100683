"""The desk: requests to cancel, retry, acknowledge and drain."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from headway_contract import subjects
from headway_contract.dead_letters import (
    AcknowledgeRequest,
    BeginCanaryRequest,
    CanaryRef,
    CanaryStatus,
    LettersChanged,
    RetryRequest,
    StopCanaryRequest,
)
from headway_contract.operations import (
    DrainAnswer,
    DrainRequest,
    SettingsAnswer,
    SettingsQuestion,
    SettingStatus,
)
from headway_contract.work_queue import CancelAnswer, CancelRequest, InputAnswer, InputQuestion
from headway_decisions.retries import dead_letters
from headway_errors import Invalid, RequestFailed, Unavailable
from headway_jetstream_kit import Broker
from headway_jetstream_kit.ask import ask
from headway_jetstream_kit.endpoints import serve
from headway_postgres_kit import Clock, Connection, Database, storable
from headway_service_kit.settings_text import settings_in_effect
from msgspec import UNSET, Struct, UnsetType

from headway_dispatcher import store
from headway_dispatcher.letters import canaries, letters
from headway_dispatcher.operate import cancel, drain
from headway_dispatcher.pages import aware, cut, read_place
from headway_dispatcher.requests import typed
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.store import IDEMPOTENCY, Times, letter_queries
from headway_dispatcher.wakeups import Wakeups

_TIMEOUT = 3.0


class _Chosen(Struct, frozen=True, kw_only=True):
    """The letters that a request selects; of a filter, one page."""

    ids: list[UUID]
    last: str = ""
    more: bool = False
    created_before: datetime | None = None


class Desk:
    """The desk of one dispatcher process; all dispatchers share the requests."""

    def __init__(
        self,
        database: Database,
        broker: Broker,
        settings: DispatcherSettings,
        *,
        name: str,
        clock: Clock,
        wake: Wakeups,
    ) -> None:
        self._name = name
        self._settings = settings
        self._database = database
        self._broker = broker
        self._clock = clock
        self._wake = wake

    async def listen(self) -> None:
        """Share the requests with the other dispatchers."""
        await serve(
            self._broker,
            service="headway-dispatcher-desk",
            queue=subjects.DISPATCHERS,
            endpoints={
                subjects.RETRY_REQUEST: typed(RetryRequest, self.retry),
                subjects.ACKNOWLEDGE_REQUEST: typed(AcknowledgeRequest, self.acknowledge),
                subjects.BEGIN_CANARY_REQUEST: typed(BeginCanaryRequest, self.begin_canary),
                subjects.STOP_CANARY_REQUEST: typed(StopCanaryRequest, self.stop_canary),
                subjects.CANCEL_REQUEST: typed(CancelRequest, self.cancel),
                subjects.DRAIN_REQUEST: typed(DrainRequest, self.drain),
                subjects.DISPATCHER_SETTINGS_QUESTION: typed(SettingsQuestion, self.settings),
            },
        )

    async def retry(self, request: RetryRequest) -> LettersChanged:
        """Run the work of dead letters again."""
        key = UNSET if request.input is UNSET else await self._check_input(request)
        order = letters.RetryOrder(actor=_actor(request), input=request.input, key=key)
        async with self._changing() as (connection, times):

            async def act() -> LettersChanged:
                chosen = await _choose(connection, request, times.schedule)
                results = await letters.retry(connection, chosen.ids, order, times=times)
                return LettersChanged(results=results, **_page_of(chosen))

            answer = await IDEMPOTENCY.run_once(
                connection, request, LettersChanged, act, now=times.real
            )
        self._wake.gate.call()
        self._wake.relay.call()
        return answer

    async def acknowledge(self, request: AcknowledgeRequest) -> LettersChanged:
        """Acknowledge dead letters."""
        async with self._changing() as (connection, times):

            async def act() -> LettersChanged:
                chosen = await _choose(connection, request, times.schedule)
                results = await letters.acknowledge(
                    connection, chosen.ids, note=request.note, actor=_actor(request), times=times
                )
                return LettersChanged(results=results, **_page_of(chosen))

            answer = await IDEMPOTENCY.run_once(
                connection, request, LettersChanged, act, now=times.real
            )
        self._wake.relay.call()
        return answer

    async def begin_canary(self, request: BeginCanaryRequest) -> CanaryStatus:
        """Begin to retry the dead letters of a failure in steps."""
        async with self._changing() as (connection, times):
            begun = await IDEMPOTENCY.run_once(
                connection,
                request,
                CanaryRef,
                lambda: canaries.begin(
                    connection, request, actor=_actor(request), now=times.schedule
                ),
                now=times.real,
            )
            status = await canaries.read_status(connection, begun.canary)
        self._wake.canaries.call()
        return status

    async def stop_canary(self, request: StopCanaryRequest) -> CanaryStatus:
        """Stop a canary; work under way continues."""
        async with self._changing() as (connection, times):
            await canaries.stop(
                connection, request.canary, actor=_actor(request), now=times.schedule
            )
            return await canaries.read_status(connection, request.canary)

    async def cancel(self, request: CancelRequest) -> CancelAnswer:
        """Cancel work."""
        async with self._changing() as (connection, times):
            answer = await IDEMPOTENCY.run_once(
                connection,
                request,
                CancelAnswer,
                lambda: cancel.cancel(connection, request, times=times),
                now=times.real,
            )
        self._wake.cancels.call()
        self._wake.gate.call()
        self._wake.relay.call()
        return answer

    async def drain(self, request: DrainRequest) -> DrainAnswer:
        """Let workers claim no more orders."""
        async with self._changing() as (connection, times):
            return await IDEMPOTENCY.run_once(
                connection,
                request,
                DrainAnswer,
                lambda: drain.drain(connection, request, times=times),
                now=times.real,
            )

    async def settings(self, _: SettingsQuestion) -> SettingsAnswer:
        """Return the settings of this process."""
        settings = [
            msgspec.convert(setting, SettingStatus, from_attributes=True)
            for setting in settings_in_effect(self._settings, os.environ)
        ]
        return SettingsAnswer(process=self._name, settings=settings)

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[tuple[Connection, Times]]:
        """Open a transaction that keeps tombstones away, and read the times."""
        async with self._database.transaction() as connection:
            await store.share_tombstone_lock(connection)
            yield connection, await store.read_times(connection, self._clock)

    async def _check_input(self, request: RetryRequest) -> str | UnsetType | None:
        """Validate an edited input with the scheduler; returns its concurrency key."""
        if len(request.dead_letters) != 1 or request.filter is not None:
            raise Invalid("an edited input needs exactly one dead letter: name that one")
        [letter] = request.dead_letters
        async with self._database.acquire() as connection:
            row = await connection.fetchrow(letter_queries["job_of"], letter)
        if row is None:
            return UNSET  # the result says that it is unknown
        job: str = row["job"]
        question = InputQuestion(
            job=job,
            input=request.input,
            manifest_id=row["manifest_id"],
            group=row["group_name"],
        )
        try:
            answer = await ask(
                self._broker, subjects.INPUT_QUESTION, question, InputAnswer, timeout=_TIMEOUT
            )
        except RequestFailed as error:
            raise Unavailable(
                f"the input of job {job!r} cannot be checked, because no scheduler answers "
                f"({error}): start one, or retry with the stored input"
            ) from error
        if answer.problem:
            raise Invalid(answer.problem)
        return answer.concurrency_key


async def _choose(
    connection: Connection, request: RetryRequest | AcknowledgeRequest, now: datetime
) -> _Chosen:
    """Return the named letters, or the oldest open ones that match the filter."""
    if request.filter is None:
        if not request.dead_letters:
            raise Invalid("no dead letter is named: name some, or give a filter")
        return _Chosen(ids=request.dead_letters)
    filter_ = request.filter
    if request.dead_letters or filter_.state not in (None, "awaiting"):
        raise Invalid("give either ids or a filter of open dead letters (state awaiting)")
    before = aware(filter_.created_before, "created_before") or now
    fingerprint, version = read_fingerprint(filter_.fingerprint)
    rows = await connection.fetch(
        letter_queries["chosen"],
        filter_.group,
        filter_.job,
        filter_.manifest,
        fingerprint,
        version,
        aware(filter_.created_after, "created_after"),
        before,
        *read_place(request.after),
        request.limit + 1,
    )
    page, last, more = cut(rows, request.limit, "created_at")
    return _Chosen(ids=[row["id"] for row in page], last=last, more=more, created_before=before)


def read_fingerprint(given: str | None) -> tuple[str | None, str | None]:
    """Return a fingerprint and its code version; `None` for any."""
    return (None, None) if given is None else dead_letters.parse_fingerprint(given)


def _page_of(chosen: _Chosen) -> dict[str, Any]:
    return {"last": chosen.last, "more": chosen.more, "created_before": chosen.created_before}


def _actor(
    request: RetryRequest | AcknowledgeRequest | BeginCanaryRequest | StopCanaryRequest,
) -> str:
    return storable(request.actor) or "unknown"
