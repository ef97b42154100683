"""A client for programs that read Headway or change it.

    async with Client("http://127.0.0.1:8080", token="headway_...") as headway:
        for manifest in await headway.manifests():
            print(manifest.external_id, manifest.next_due_at)
        await headway.schedule("nightly-x", job="cleanup", when=daily("03:15"))

It sends requests to the HTTP API of a console; the audit names the owner of the token. Manifests
that it makes belong to no application: no start of an application prunes them.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self
from uuid import UUID

import httpx
from headway_clock import utc_now
from headway_contract.scheduling import (
    BackfillAnswer,
    BackfillRequest,
    Changed,
    DismissRequest,
    EnqueueAnswer,
    EnqueuedStatus,
    EnqueueRequest,
    ExplainAnswer,
    ExplainQuestion,
    GroupStatus,
    LedgerAnswer,
    LedgerQuestion,
    ManifestAnswer,
    ManifestStatus,
    PreviewAnswer,
    PreviewQuestion,
    TriggerAnswer,
    TriggerRequest,
)
from headway_contract.waiting import ExplainWorkAnswer
from headway_errors import RequestFailed as RequestFailed
from headway_tracing import traceparent
from msgspec import UNSET, structs

from headway.client.changes import Changes
from headway.client.control import PATIENT_SECONDS
from headway.client.http_control import HttpControl, check_url, segment
from headway.client.operations import Operations
from headway.client.pauses import Pauses
from headway.client.schedules import Schedules


class Client(Schedules, Operations, Pauses, Changes):
    """A connection to the console at a URL, with the rights of a token.

    `transport` replaces the network, as in tests. One-shot delays count from `now`.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        check_url(url)
        self._url = url
        self._token = token
        self._transport = transport
        self._now = now
        self._opened: HttpControl | None = None

    async def __aenter__(self) -> Self:
        """Open the connection."""
        self._opened = HttpControl(self._url, token=self._token, transport=self._transport)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connection."""
        if self._opened is not None:
            await self._opened.close()

    async def manifests(self) -> list[ManifestStatus]:
        """List every manifest with its status, in the order of their ids."""
        return await self._console.list("/manifests", {}, ManifestStatus)

    async def manifest(self, external_id: str) -> ManifestAnswer:
        """Return a manifest: its status, its definition, and what operators changed."""
        return await self._console.show(f"/manifests/{segment(external_id)}", ManifestAnswer)

    async def groups(self) -> list[GroupStatus]:
        """List every group with its settings, in the order of their names."""
        return await self._console.list("/groups", {}, GroupStatus)

    async def preview(
        self,
        external_id: str,
        count: int = 20,
        *,
        after: datetime | None = None,
        each: bool = False,
    ) -> PreviewAnswer:
        """The next times at which a manifest fires, from now or from an instant on.

        Excluded times between them are folded; with `each` all due times count alike.
        """
        question = PreviewQuestion(manifest=external_id, count=count, after=after, each=each)
        return await self._console.ask(
            "GET", "/manifests/{manifest}/preview", question, PreviewAnswer, timeout=PATIENT_SECONDS
        )

    async def explain(self, external_id: str, *, at: datetime | None = None) -> ExplainAnswer:
        """Why a manifest ran or did not at an instant, or how it stands now."""
        question = ExplainQuestion(manifest=external_id, at=at)
        return await self._console.ask(
            "GET", "/manifests/{manifest}/explain", question, ExplainAnswer
        )

    async def explain_work(self, work: UUID | str) -> ExplainWorkAnswer:
        """Why a piece of work waits: its gates, who holds the slots, and when it may start."""
        return await self._console.show(f"/work/{_work_id(work)}/explain", ExplainWorkAnswer)

    async def ledger(
        self,
        external_id: str | None = None,
        *,
        since: datetime | None = None,
        on_page: Callable[[LedgerAnswer], None] = lambda _: None,
    ) -> LedgerAnswer:
        """Compare what should have fired with what the ledger tells, of one manifest or all.

        `on_page` is told the answer so far, whenever there is more.
        """
        total = LedgerAnswer()
        questions = [LedgerQuestion(manifest=external_id, since=since)]
        while questions:
            question = questions.pop()
            page = await self._console.ask(
                "GET", "/ledger", question, LedgerAnswer, timeout=PATIENT_SECONDS
            )
            total = _added(total, page)
            on_page(total)
            if page.more:
                questions.append(structs.replace(question, after=page.last))
            questions += [
                LedgerQuestion(manifest=name, since=start)
                for name, start in page.unfinished.items()
            ]
        return total

    async def trigger(
        self,
        external_id: str,
        *,
        input: Any = UNSET,  # noqa: A002
        delay: float = 0.0,
        priority: int | None = None,
        start_within: float | timedelta | None = None,
        key: str | None = None,
    ) -> TriggerAnswer:
        """Run a manifest now, or after a delay in seconds; the same key triggers only once.

        Work that has not begun within `start_within` seconds of when it may expires.
        """
        request = TriggerRequest(
            manifest=external_id,
            key=key,
            input=input,
            delay_seconds=delay,
            priority=priority,
            start_within_seconds=start_within.total_seconds()
            if isinstance(start_within, timedelta)
            else start_within,
        )
        return await self._console.ask(
            "POST", "/manifests/{manifest}/trigger", request, TriggerAnswer
        )

    async def backfill(
        self,
        external_id: str,
        *,
        since: datetime,
        until: datetime,
        missed_only: bool = False,
        priority: int | None = None,
        dry_run: bool = False,
    ) -> BackfillAnswer:
        """Queue the occurrences of a past range, both ends included; none is queued twice.

        They run oldest first, one after the other or as many at once as `allow` lets. With
        `missed_only` those that fired on schedule are left out; `dry_run` only counts.
        """
        request = BackfillRequest(
            manifest=external_id,
            since=since,
            until=until,
            missed_only=missed_only,
            priority=priority,
            dry_run=dry_run,
        )
        return await self._console.ask(
            "POST",
            "/manifests/{manifest}/backfill",
            request,
            BackfillAnswer,
            timeout=PATIENT_SECONDS,
        )

    async def enqueue(
        self,
        job: str,
        input: Any = None,  # noqa: A002
        *,
        group: str | None = None,
        priority: int | None = None,
        delay: float | None = None,
        not_before: datetime | None = None,
        start_by: datetime | None = None,
        key: str | None = None,
    ) -> EnqueueAnswer:
        """Queue work of a declared job; inside a transaction of your own use `headway.enqueue`."""
        request = EnqueueRequest(
            job=job,
            input=input,
            group=group,
            priority=priority,
            delay_seconds=delay,
            not_before=not_before,
            start_by=start_by,
            key=key,
            traceparent=traceparent(),
        )
        return await self._console.ask("POST", "/jobs/{job}/enqueue", request, EnqueueAnswer)

    async def enqueued(self, *, refused_only: bool = False) -> list[EnqueuedStatus]:
        """What was enqueued and waits to be taken up, or was refused, the oldest first."""
        query = {"refused_only": refused_only}
        return await self._console.list("/enqueued", query, EnqueuedStatus)

    async def dismiss(self, work: UUID) -> Changed:
        """Forget work that was enqueued and refused; its key may then be used again."""
        request = DismissRequest(work=work)
        return await self._console.ask("DELETE", "/enqueued/{work}", request, Changed)

    @property
    def _console(self) -> HttpControl:
        if self._opened is None:
            raise RequestFailed("the client is not connected: use it as 'async with Client(...)'")
        return self._opened


def _work_id(given: UUID | str) -> UUID:
    try:
        return given if isinstance(given, UUID) else UUID(given)
    except ValueError:
        raise RequestFailed(
            f"{given!r} is no id of work, which looks like {UUID(int=0)}: "
            "'headway explain <manifest>' names those of a manifest"
        ) from None


def _added(total: LedgerAnswer, page: LedgerAnswer) -> LedgerAnswer:
    """Two answers as one; a manifest that is asked about again counts once."""
    return LedgerAnswer(
        manifests=total.manifests + page.manifests - len(page.unfinished),
        fire_times=total.fire_times + page.fire_times,
        gaps=list(dict.fromkeys([*total.gaps, *page.gaps])),
        last=max(total.last, page.last),
    )
