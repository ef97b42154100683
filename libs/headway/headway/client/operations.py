"""What the client asks of the dispatcher: work, runs, workers, cancels and dead letters."""

from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from headway_contract import subjects
from headway_contract.dispatching import (
    AcknowledgeRequest,
    CancelAnswer,
    CancelRequest,
    CancelResult,
    DeadLetterAnswer,
    DeadLetterQuestion,
    DeadLettersAnswer,
    DeadLettersQuestion,
    DeadLetterStatus,
    GroupOccupancy,
    LetterFilter,
    LetterResult,
    LettersChanged,
    LetterState,
    OccupancyAnswer,
    OccupancyQuestion,
    RetryRequest,
    RunAnswer,
    RunQuestion,
    RunsAnswer,
    RunsQuestion,
    RunStateAsked,
    RunStatus,
    WorkAnswer,
    WorkersAnswer,
    WorkersQuestion,
    WorkerStatus,
    WorkQuestion,
    WorksAnswer,
    WorksQuestion,
    WorkStateAsked,
    WorkStatus,
)
from headway_contract.operating import DrainAnswer, DrainRequest, DrainResult
from headway_contract.scheduling import (
    CancelOutstandingRequest,
    ManifestAnswer,
    ManifestQuestion,
)
from headway_errors import RequestFailed
from msgspec import UNSET, Struct, structs

from headway.client.control import PATIENT_SECONDS, Asking

# How many entries one question asks for: an answer has to fit into one message.
_PAGE = 200

Page = TypeVar("Page", bound=Struct)
OnPage = Callable[[list[LetterResult]], None]


class Operations(Asking):
    """The part of a client that speaks with the dispatcher."""

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
        """Dead letters, the newest first: those that await somebody, or in any state (none)."""
        asked = LetterFilter(
            group=group,
            job=job,
            manifest=manifest,
            fingerprint=fingerprint,
            state=state,
            created_after=created_after,
            created_before=created_before,
        )
        found: list[DeadLetterStatus] = []
        question = DeadLettersQuestion(filter=asked, limit=_first_page(most))
        async for page in self._pages(subjects.DEAD_LETTERS_QUESTION, question, DeadLettersAnswer):
            found += page.dead_letters
            if most is not None and len(found) >= most:
                break
        return found[:most]

    async def dead_letter(self, id: UUID) -> DeadLetterAnswer:  # noqa: A002
        """One dead letter in full, by its id or by that of its work."""
        question = DeadLetterQuestion(id=id)
        return await self._control.ask(subjects.DEAD_LETTER_QUESTION, question, DeadLetterAnswer)

    async def retry(self, *dead_letters: UUID, input: Any = UNSET) -> list[LetterResult]:  # noqa: A002
        """Run the work of dead letters again; with an edited input, of just one."""
        request = RetryRequest(dead_letters=list(dead_letters), input=input, actor=self._actor)
        return (await self._control.ask(subjects.RETRY_REQUEST, request, LettersChanged)).results

    async def retry_all(
        self,
        filter: LetterFilter,  # noqa: A002
        *,
        on_page: OnPage = lambda _: None,
    ) -> list[LetterResult]:
        """Run the work of all dead letters again that await somebody now and match a filter.

        `on_page` is told the results so far, whenever there are more.
        """
        request = RetryRequest(filter=filter, actor=self._actor)
        return await self._change_all(subjects.RETRY_REQUEST, request, on_page)

    async def acknowledge(self, *dead_letters: UUID, note: str = "") -> list[LetterResult]:
        """Put dead letters away; their manifests go on."""
        request = AcknowledgeRequest(dead_letters=list(dead_letters), note=note, actor=self._actor)
        answer = await self._control.ask(subjects.ACKNOWLEDGE_REQUEST, request, LettersChanged)
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
        request = AcknowledgeRequest(filter=filter, note=note, actor=self._actor)
        return await self._change_all(subjects.ACKNOWLEDGE_REQUEST, request, on_page)

    async def cancel(self, id: UUID, *, reason: str = "") -> CancelResult:  # noqa: A002
        """End a run or a piece of work early, also one that is still on its way."""
        request = CancelRequest(ids=[id], reason=reason, actor=self._actor)
        [result] = (await self._control.ask(subjects.CANCEL_REQUEST, request, CancelAnswer)).results
        if result.result != "unknown":
            return result
        outstanding = CancelOutstandingRequest(work=id, reason=reason, actor=self._actor)
        found = (await self._cancel_outstanding(outstanding)).results
        return found[0] if found else result

    async def cancel_manifest(self, external_id: str, *, reason: str = "") -> CancelAnswer:
        """End all work of a manifest early; what has no work yet gets none."""
        return await self._cancel_outstanding(
            CancelOutstandingRequest(manifest=external_id, reason=reason, actor=self._actor)
        )

    async def cancel_group(self, name: str, *, reason: str = "") -> CancelAnswer:
        """End all work of a group early; what has no work yet gets none."""
        return await self._cancel_outstanding(
            CancelOutstandingRequest(group=name, reason=reason, actor=self._actor)
        )

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
        question = WorksQuestion(
            state=state,
            group=group,
            job=job,
            manifest_id=await self._manifest_id(manifest),
            reason=reason,
            limit=_first_page(most),
        )
        found: list[WorkStatus] = []
        async for page in self._pages(subjects.WORKS_QUESTION, question, WorksAnswer):
            found += page.works
            if most is not None and len(found) >= most:
                break
        return found[:most]

    async def work(self, id: UUID) -> WorkAnswer:  # noqa: A002
        """One piece of work in full with its runs, by its id or by that of a run."""
        return await self._control.ask(subjects.WORK_QUESTION, WorkQuestion(id=id), WorkAnswer)

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
        question = RunsQuestion(
            state=state,
            group=group,
            job=job,
            manifest_id=await self._manifest_id(manifest),
            work=work,
            worker=worker,
            since=since,
            before=until,
            limit=_first_page(most),
        )
        found: list[RunStatus] = []
        async for page in self._pages(subjects.RUNS_QUESTION, question, RunsAnswer):
            found += page.runs
            if most is not None and len(found) >= most:
                break
        return found[:most]

    async def run(self, run: UUID) -> RunAnswer:
        """One run in full."""
        return await self._control.ask(subjects.RUN_QUESTION, RunQuestion(run=run), RunAnswer)

    async def workers(self) -> list[WorkerStatus]:
        """Every worker that was heard and has not said goodbye, in the order of their names."""
        found: list[WorkerStatus] = []
        question = WorkersQuestion(limit=_PAGE)
        async for page in self._pages(subjects.WORKERS_QUESTION, question, WorkersAnswer):
            found += page.workers
        return found

    async def drain(self, *workers: str) -> list[DrainResult]:
        """Let workers take no more orders, finish what they run, and end; tells of each."""
        request = DrainRequest(workers=list(workers), actor=self._actor)
        return (await self._control.ask(subjects.DRAIN_REQUEST, request, DrainAnswer)).results

    async def occupancy(self, group: str | None = None) -> list[GroupOccupancy]:
        """What groups have under way, and what waits in them and why."""
        question = OccupancyQuestion(group=group)
        answer = await self._control.ask(subjects.OCCUPANCY_QUESTION, question, OccupancyAnswer)
        return answer.groups

    async def _pages(self, subject: str, question: Any, answer: type[Page]) -> AsyncIterator[Any]:
        while True:
            page: Any = await self._control.ask(subject, question, answer)
            yield page
            if not page.more:
                return
            question = structs.replace(question, after=page.last)

    async def _change_all(self, subject: str, request: Any, on_page: OnPage) -> list[LetterResult]:
        """Page after page, of letters that were there when it began."""
        results: list[LetterResult] = []
        while True:
            page = await self._control.ask(
                subject, request, LettersChanged, timeout=PATIENT_SECONDS
            )
            results += page.results
            on_page(results)
            if not page.more:
                return results
            bounded = structs.replace(request.filter, created_before=page.created_before)
            request = structs.replace(request, filter=bounded, after=page.last)

    async def _cancel_outstanding(self, request: CancelOutstandingRequest) -> CancelAnswer:
        return await self._control.ask(
            subjects.CANCEL_OUTSTANDING_REQUEST, request, CancelAnswer, timeout=PATIENT_SECONDS
        )

    async def _manifest_id(self, external_id: str | None) -> UUID | None:
        """The id by which the dispatcher knows a manifest."""
        if external_id is None:
            return None
        question = ManifestQuestion(manifest=external_id)
        found = await self._control.ask(subjects.MANIFEST_QUESTION, question, ManifestAnswer)
        if found.status.id is None:
            raise RequestFailed("the scheduler is of an older version: upgrade it to ask for this")
        return found.status.id


def _first_page(most: int | None) -> int:
    return _PAGE if most is None else max(1, min(most, _PAGE))
