"""The connection of a client, and its questions, which change nothing."""

from collections.abc import Callable
from datetime import datetime
from typing import Self
from uuid import UUID

import httpx
from headway_clock import utc_now
from headway_contract.dead_letters import DeadLetterAnswer, DeadLetterStatus, LetterState
from headway_contract.manifests import (
    ExplainAnswer,
    ExplainQuestion,
    LedgerAnswer,
    LedgerQuestion,
    ManifestAnswer,
    ManifestStatus,
    PreviewAnswer,
    PreviewQuestion,
)
from headway_contract.operations import GroupOccupancy, GroupStatus, OccupancyAnswer, WorkerStatus
from headway_contract.work_queue import (
    EnqueuedStatus,
    ExplainWorkAnswer,
    RunAnswer,
    RunState,
    RunStatus,
    WorkAnswer,
    WorkState,
    WorkStatus,
)
from headway_errors import RequestFailed
from msgspec import structs

from headway.client.control import PATIENT_SECONDS
from headway.client.http_control import HttpControl, check_url, segment


class Reads:
    """A connection to the console at a URL, with the rights of a token.

    `transport` replaces the network, as in tests. Delays of one-shots count from `now`.
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

    async def __aexit__(self, *_: object) -> None:
        """Close the connection."""
        if self._opened is not None:
            await self._opened.close()

    @property
    def _console(self) -> HttpControl:
        if self._opened is None:
            raise RequestFailed("the client is not connected: use it as 'async with Client(...)'")
        return self._opened

    async def manifests(self) -> list[ManifestStatus]:
        """List all manifests with their status, by id."""
        return await self._console.list("/manifests", {}, ManifestStatus)

    async def manifest(self, external_id: str) -> ManifestAnswer:
        """Return a manifest: its status, its definition, and the changes of operators."""
        return await self._console.show(f"/manifests/{segment(external_id)}", ManifestAnswer)

    async def groups(self) -> list[GroupStatus]:
        """List all groups with their settings, by name."""
        return await self._console.list("/groups", {}, GroupStatus)

    async def preview(
        self,
        external_id: str,
        count: int = 20,
        *,
        after: datetime | None = None,
        each: bool = False,
    ) -> PreviewAnswer:
        """Return the next fire times of a manifest, from now or from an instant on.

        Excluded times between them are folded; with `each` all due times count alike.
        """
        question = PreviewQuestion(manifest=external_id, count=count, after=after, each=each)
        return await self._console.ask(
            "GET", "/manifests/{manifest}/preview", question, PreviewAnswer, timeout=PATIENT_SECONDS
        )

    async def explain(self, external_id: str, *, at: datetime | None = None) -> ExplainAnswer:
        """Explain why a manifest ran or did not run at an instant, or its status now."""
        question = ExplainQuestion(manifest=external_id, at=at)
        return await self._console.ask(
            "GET", "/manifests/{manifest}/explain", question, ExplainAnswer
        )

    async def explain_work(self, work: UUID | str) -> ExplainWorkAnswer:
        """Explain why work waits: its gates, the holders of the slots, and its earliest start."""
        try:
            work = UUID(str(work))
        except ValueError:
            raise RequestFailed(
                f"{work!r} is not a work id such as {UUID(int=0)}: "
                "'headway explain <manifest>' shows the ids of a manifest"
            ) from None
        return await self._console.show(f"/work/{work}/explain", ExplainWorkAnswer)

    async def ledger(
        self,
        external_id: str | None = None,
        *,
        since: datetime | None = None,
        on_page: Callable[[LedgerAnswer], None] = lambda _: None,
    ) -> LedgerAnswer:
        """Compare the fire times of one manifest or all with the ledger, and return the gaps.

        `on_page` receives the answer so far, after each page.
        """
        total = LedgerAnswer()
        questions = [LedgerQuestion(manifest=external_id, since=since)]
        while questions:
            question = questions.pop()
            page = await self._console.ask(
                "GET", "/ledger", question, LedgerAnswer, timeout=PATIENT_SECONDS
            )
            total = LedgerAnswer(
                # An unfinished manifest comes again, and counts once.
                manifests=total.manifests + page.manifests - len(page.unfinished),
                fire_times=total.fire_times + page.fire_times,
                gaps=list(dict.fromkeys([*total.gaps, *page.gaps])),
                last=max(total.last, page.last),
            )
            on_page(total)
            if page.more:
                questions.append(structs.replace(question, after=page.last))
            questions += [
                LedgerQuestion(manifest=name, since=start)
                for name, start in page.unfinished.items()
            ]
        return total

    async def enqueued(self, *, refused_only: bool = False) -> list[EnqueuedStatus]:
        """List enqueued work that is not taken up yet or was refused, oldest first."""
        query = {"refused_only": refused_only}
        return await self._console.list("/enqueued", query, EnqueuedStatus)

    async def dead_letters(
        self,
        *,
        group: str | None = None,
        job: str | None = None,
        manifest: str | None = None,
        fingerprint: str | None = None,
        state: LetterState | None = "awaiting",
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        most: int | None = None,
    ) -> list[DeadLetterStatus]:
        """List dead letters, newest first; `state=None` lists those of any state."""
        query = {
            "group": group,
            "job": job,
            "manifest": manifest,
            "fingerprint": fingerprint,
            "state": state,
            "created_after": created_after,
            "created_before": created_before,
        }
        return await self._console.list("/dead-letters", query, DeadLetterStatus, most=most)

    async def dead_letter(self, id: UUID) -> DeadLetterAnswer:  # noqa: A002
        """Return a dead letter in full, by its id or by that of its work."""
        return await self._console.show(f"/dead-letters/{segment(id)}", DeadLetterAnswer)

    async def works(
        self,
        *,
        state: WorkState | None = None,
        group: str | None = None,
        job: str | None = None,
        manifest: str | None = None,
        reason: str | None = None,
        most: int | None = None,
    ) -> list[WorkStatus]:
        """List work in a state, by default all that is not settled, newest first.

        `reason` is why it waits or, if it is settled, its outcome.
        """
        query = {
            "state": state,
            "group": group,
            "job": job,
            "manifest_id": await self._manifest_id(manifest),
            "reason": reason,
        }
        return await self._console.list("/work", query, WorkStatus, most=most)

    async def work(self, id: UUID) -> WorkAnswer:  # noqa: A002
        """Return work in full with its runs, by its id or by that of a run."""
        return await self._console.show(f"/work/{segment(id)}", WorkAnswer)

    async def runs(
        self,
        *,
        state: RunState | None = None,
        group: str | None = None,
        job: str | None = None,
        manifest: str | None = None,
        work: UUID | None = None,
        worker: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        most: int | None = 1000,
    ) -> list[RunStatus]:
        """List runs, newest first: those admitted from `since` on and before `until`."""
        query = {
            "state": state,
            "group": group,
            "job": job,
            "manifest_id": await self._manifest_id(manifest),
            "work": work,
            "worker": worker,
            "since": since,
            "before": until,
        }
        return await self._console.list("/runs", query, RunStatus, most=most)

    async def run(self, run: UUID) -> RunAnswer:
        """Return a run in full."""
        return await self._console.show(f"/runs/{segment(run)}", RunAnswer)

    async def workers(self) -> list[WorkerStatus]:
        """List the workers that have not stopped, by name."""
        return await self._console.list("/workers", {}, WorkerStatus)

    async def occupancy(self, group: str | None = None) -> list[GroupOccupancy]:
        """Return the running work of groups, and their waiting work by reason."""
        answer = await self._console.show("/occupancy", OccupancyAnswer, {"group": group})
        return answer.groups

    async def _manifest_id(self, external_id: str | None) -> UUID | None:
        """Return the id of a manifest in the database."""
        return None if external_id is None else (await self.manifest(external_id)).status.id
