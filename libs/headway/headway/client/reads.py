"""The connection of a client, and its questions, which change nothing."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Self
from uuid import UUID

import httpx
from headway_clock import utc_now
from headway_contract import work_queue
from headway_contract.dead_letters import DeadLetterAnswer, DeadLetterStatus, LetterState
from headway_contract.fields import begins_id
from headway_contract.manifests import (
    ExplainAnswer,
    LedgerAnswer,
    ManifestAnswer,
    ManifestStatus,
    PauseStatus,
    PreviewAnswer,
)
from headway_contract.operations import GroupOccupancy, GroupStatus, OccupancyAnswer, WorkerStatus
from headway_errors import RequestFailed
from msgspec import Struct

from headway.client.http_control import Answer, HttpControl, segment

# A full id, or the beginning of one: its first 4 digits or more, if no other id begins so.
Id = UUID | str


class Reads:
    """A client that only reads."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._console = HttpControl(url, token=token, transport=transport)
        self._now = now

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._console.close()

    async def _ask(
        self, path: str, request: Struct, answer: type[Answer], method: str = "POST"
    ) -> Answer:
        return await self._console.ask(method, path, request, answer)

    async def manifests(self) -> list[ManifestStatus]:
        """List all manifests with their status, by id."""
        return await self._console.list("/manifests", {}, ManifestStatus)

    async def manifest(self, external_id: str) -> ManifestAnswer:
        """Return a manifest: its status, its definition, and the changes of operators."""
        return await self._console.show(f"/manifests/{segment(external_id)}", ManifestAnswer)

    async def pauses(self) -> list[PauseStatus]:
        """List the pauses in force, the oldest first."""
        return await self._console.list("/pauses", {}, PauseStatus)

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
        query = {"count": count, "after": after, "each": each}
        path = f"/manifests/{segment(external_id)}/preview"
        return await self._console.show(path, PreviewAnswer, query)

    async def explain(self, external_id: str, *, at: datetime | None = None) -> ExplainAnswer:
        """Explain why a manifest ran or did not run at an instant, or its status now."""
        path = f"/manifests/{segment(external_id)}/explain"
        return await self._console.show(path, ExplainAnswer, {"at": at})

    async def explain_work(self, work: Id) -> work_queue.ExplainWorkAnswer:
        """Explain why work waits: its gates, the holders of the slots, and its earliest start."""
        try:
            UUID(str(work))
        except ValueError:
            if not begins_id(str(work)):
                raise RequestFailed(
                    f"{work!r} is not a work id such as {UUID(int=0)}: "
                    "'headway explain <manifest>' shows the ids of a manifest"
                ) from None
        path = f"/work/{segment(work)}/explain"
        return await self._console.show(path, work_queue.ExplainWorkAnswer)

    async def ledger(
        self,
        external_id: str | None = None,
        *,
        since: datetime | None = None,
        on_page: Callable[[LedgerAnswer], None] = lambda _: None,
    ) -> LedgerAnswer:
        """Compare the fire times of one manifest or all with the ledger, and return the gaps."""
        total = LedgerAnswer()
        queries: list[dict[str, Any]] = [{"manifest": external_id, "since": since}]
        while queries:
            query = queries.pop()
            page = await self._console.show("/ledger", LedgerAnswer, query)
            total = LedgerAnswer(
                # An unfinished manifest comes again, and counts once.
                manifests=total.manifests + page.manifests - len(page.unfinished),
                fire_times=total.fire_times + page.fire_times,
                gaps=list(dict.fromkeys([*total.gaps, *page.gaps])),
                last=max(total.last, page.last),
            )
            on_page(total)
            if page.more:
                queries.append({**query, "after": page.last})
            for name, start in page.unfinished.items():
                queries.append({"manifest": name, "since": start})
        return total

    async def enqueued(self, *, refused_only: bool = False) -> list[work_queue.EnqueuedStatus]:
        """List enqueued work that is not taken up yet or was refused, oldest first."""
        query = {"refused_only": refused_only}
        return await self._console.list("/enqueued", query, work_queue.EnqueuedStatus)

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

    async def dead_letter(self, id: Id) -> DeadLetterAnswer:  # noqa: A002
        """Return a dead letter in full, by its id or by that of its work."""
        return await self._console.show(f"/dead-letters/{segment(id)}", DeadLetterAnswer)

    async def works(
        self,
        *,
        state: work_queue.WorkState | None = None,
        group: str | None = None,
        job: str | None = None,
        manifest: str | None = None,
        reason: str | None = None,
        most: int | None = None,
    ) -> list[work_queue.WorkStatus]:
        """List work, newest first, by default all that waits; `reason` may be an outcome."""
        query = {
            "state": state,
            "group": group,
            "job": job,
            "manifest_id": await self._manifest_id(manifest),
            "reason": reason,
        }
        return await self._console.list("/work", query, work_queue.WorkStatus, most=most)

    async def work(self, id: Id) -> work_queue.WorkAnswer:  # noqa: A002
        """Return work in full with its runs, by its id or by that of a run."""
        return await self._console.show(f"/work/{segment(id)}", work_queue.WorkAnswer)

    async def runs(
        self,
        *,
        state: work_queue.RunState | None = None,
        group: str | None = None,
        job: str | None = None,
        manifest: str | None = None,
        work: Id | None = None,
        worker: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        text: str | None = None,
        most: int | None = 1000,
    ) -> list[work_queue.RunStatus]:
        """List runs, newest first: those admitted from `since` on and before `until`.

        `text` is searched in their inputs and errors.
        """
        query = {
            "state": state,
            "group": group,
            "job": job,
            "manifest_id": await self._manifest_id(manifest),
            "work": work,
            "worker": worker,
            "since": since,
            "before": until,
            "text": text,
        }
        return await self._console.list("/runs", query, work_queue.RunStatus, most=most)

    async def run(self, run: Id) -> work_queue.RunAnswer:
        """Return a run in full."""
        return await self._console.show(f"/runs/{segment(run)}", work_queue.RunAnswer)

    async def log(self, run: Id, *, after: int = 0) -> work_queue.RunLogAnswer:
        """Return log lines of a run after a number, with its state and its latest progress."""
        path = f"/runs/{segment(run)}/log"
        return await self._console.show(path, work_queue.RunLogAnswer, {"after": after})

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
