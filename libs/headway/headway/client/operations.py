"""Work, runs, workers, cancels and dead letters."""

from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

from headway_contract.dispatching import (
    AcknowledgeRequest,
    CancelAnswer,
    CancelRequest,
    CancelResult,
    DeadLetterAnswer,
    DeadLetterStatus,
    GroupOccupancy,
    LetterFilter,
    LetterResult,
    LettersChanged,
    LetterState,
    OccupancyAnswer,
    RetryRequest,
    RunAnswer,
    RunStateAsked,
    RunStatus,
    WorkAnswer,
    WorkerStatus,
    WorkStateAsked,
    WorkStatus,
)
from headway_contract.operating import DrainAnswer, DrainRequest, DrainResult
from headway_contract.scheduling import (
    CancelOutstandingRequest,
    ManifestAnswer,
)
from msgspec import UNSET, structs

from headway.client.control import PATIENT_SECONDS, Asking
from headway.client.http_control import segment

_RETRY = "/dead-letters/retry"
_ACKNOWLEDGE = "/dead-letters/acknowledge"

OnPage = Callable[[list[LetterResult]], None]


class Operations(Asking):
    """The part of a client that reads and changes work."""

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
        """List dead letters, the newest first; `state=None` lists those of any state."""
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

    async def retry(self, *dead_letters: UUID, input: Any = UNSET) -> list[LetterResult]:  # noqa: A002
        """Run the work of dead letters again; with an edited input, of just one."""
        request = RetryRequest(dead_letters=list(dead_letters), input=input)
        answer = await self._console.ask("POST", _RETRY, request, LettersChanged)
        return answer.results

    async def retry_all(
        self,
        filter: LetterFilter,  # noqa: A002
        *,
        on_page: OnPage = lambda _: None,
    ) -> list[LetterResult]:
        """Run the work of all dead letters again that await somebody now and match a filter.

        `on_page` is told the results so far, whenever there are more.
        """
        request = RetryRequest(filter=filter)
        return await self._change_all(_RETRY, request, on_page)

    async def acknowledge(self, *dead_letters: UUID, note: str = "") -> list[LetterResult]:
        """Put dead letters away; their manifests go on."""
        request = AcknowledgeRequest(dead_letters=list(dead_letters), note=note)
        answer = await self._console.ask("POST", _ACKNOWLEDGE, request, LettersChanged)
        return answer.results

    async def acknowledge_all(
        self,
        filter: LetterFilter,  # noqa: A002
        *,
        note: str = "",
        on_page: OnPage = lambda _: None,
    ) -> list[LetterResult]:
        """Put all dead letters away that await somebody now and match a filter.

        `on_page` is told the results so far, whenever there are more.
        """
        request = AcknowledgeRequest(filter=filter, note=note)
        return await self._change_all(_ACKNOWLEDGE, request, on_page)

    async def cancel(self, id: UUID, *, reason: str = "") -> CancelResult:  # noqa: A002
        """End a run or a piece of work early, also one that is still on its way."""
        request = CancelRequest(ids=[id], reason=reason)
        answer = await self._console.ask("POST", "/work/cancel", request, CancelAnswer)
        [result] = answer.results
        if result.result != "unknown":
            return result
        outstanding = CancelOutstandingRequest(work=id, reason=reason)
        found = (await self._cancel("/work/{work}/cancel", outstanding)).results
        return found[0] if found else result

    async def cancel_manifest(self, external_id: str, *, reason: str = "") -> CancelAnswer:
        """End all work of a manifest early; what has no work yet gets none."""
        request = CancelOutstandingRequest(manifest=external_id, reason=reason)
        return await self._cancel("/manifests/{manifest}/cancel", request)

    async def cancel_group(self, name: str, *, reason: str = "") -> CancelAnswer:
        """End all work of a group early; what has no work yet gets none."""
        request = CancelOutstandingRequest(group=name, reason=reason)
        return await self._cancel("/groups/{group}/cancel", request)

    async def works(
        self,
        *,
        state: WorkStateAsked | None = None,
        group: str | None = None,
        job: str | None = None,
        manifest: str | None = None,
        reason: str | None = None,
        most: int | None = None,
    ) -> list[WorkStatus]:
        """Work in a state, or without one all that is not settled, the newest first.

        `reason` is why it waits; of work that is settled, its outcome.
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
        """Return a piece of work in full with its runs, by its id or by that of a run."""
        return await self._console.show(f"/work/{segment(id)}", WorkAnswer)

    async def runs(
        self,
        *,
        state: RunStateAsked | None = None,
        group: str | None = None,
        job: str | None = None,
        manifest: str | None = None,
        work: UUID | None = None,
        worker: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        most: int | None = 1000,
    ) -> list[RunStatus]:
        """List runs, the newest first: those admitted from `since` on and before `until`."""
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
        """List the workers that have not said goodbye, in the order of their names."""
        return await self._console.list("/workers", {}, WorkerStatus)

    async def drain(self, *workers: str) -> list[DrainResult]:
        """Let workers finish what they run, take no more orders, and end."""
        request = DrainRequest(workers=list(workers))
        return (await self._console.ask("POST", "/workers/drain", request, DrainAnswer)).results

    async def occupancy(self, group: str | None = None) -> list[GroupOccupancy]:
        """Return what groups run, and what waits in them and why."""
        answer = await self._console.show("/occupancy", OccupancyAnswer, {"group": group})
        return answer.groups

    async def _change_all(self, path: str, request: Any, on_page: OnPage) -> list[LetterResult]:
        """Change dead letters page after page; those that come meanwhile are left out."""
        results: list[LetterResult] = []
        while True:
            page = await self._console.ask(
                "POST", path, request, LettersChanged, timeout=PATIENT_SECONDS
            )
            results += page.results
            on_page(results)
            if not page.more:
                return results
            bounded = structs.replace(request.filter, created_before=page.created_before)
            request = structs.replace(request, filter=bounded, after=page.last)

    async def _cancel(self, path: str, request: CancelOutstandingRequest) -> CancelAnswer:
        return await self._console.ask("POST", path, request, CancelAnswer, timeout=PATIENT_SECONDS)

    async def _manifest_id(self, external_id: str | None) -> UUID | None:
        """Return the id by which the dispatcher knows a manifest; raises if there is none."""
        if external_id is None:
            return None
        found = await self._console.show(f"/manifests/{segment(external_id)}", ManifestAnswer)
        return found.status.id
