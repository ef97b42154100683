"""A client for programs that read Headway or change it.

    async with Client("http://127.0.0.1:8080", token="headway_...") as headway:
        for manifest in await headway.manifests():
            print(manifest.external_id, manifest.next_due_at)
        await headway.schedule("nightly-x", job="cleanup", when=daily("03:15"))

It sends requests to the HTTP API of a console; the audit names the owner of the token. Manifests
that it creates belong to no application, so no application prunes them.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, cast
from uuid import UUID

from headway_contract import dead_letters as letters
from headway_contract import definitions, manifests, operations, work_queue
from headway_contract.fields import Changed, Rate
from headway_decisions.capacity.rates import parse_rate
from headway_errors import RequestFailed as RequestFailed
from headway_tracing import traceparent
from msgspec import UNSET, UnsetType, structs

from headway.client.reads import Id
from headway.client.schedules import Schedules

# Called with the results so far, after each page.
OnPage = Callable[[list[letters.LetterResult]], None]


class Client(Schedules):
    """A connection to the console at a URL, with the rights of a token.

    `transport` replaces the network, as in tests. Delays of one-shots count from `now`.
    """

    async def trigger(
        self,
        external_id: str,
        *,
        input: Any = UNSET,  # noqa: A002
        delay: float = 0.0,
        priority: int | None = None,
        start_within: float | timedelta | None = None,
        key: str | None = None,
    ) -> manifests.TriggerAnswer:
        """Run a manifest now, or after a delay in seconds; the same key triggers only once.

        Work that does not start within `start_within` seconds after the delay expires. Raises
        `Conflict` if work of the manifest runs and its overlap policy allows no more.
        """
        if isinstance(start_within, timedelta):
            start_within = start_within.total_seconds()
        request = manifests.TriggerRequest(
            manifest=external_id,
            key=key,
            input=input,
            delay_seconds=delay,
            priority=priority,
            start_within_seconds=start_within,
        )
        return await self._ask("/manifests/{manifest}/trigger", request, manifests.TriggerAnswer)

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
    ) -> work_queue.EnqueueAnswer:
        """Queue work of a declared job; inside your own transaction use `headway.enqueue`."""
        request = work_queue.EnqueueRequest(
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
        return await self._ask("/jobs/{job}/enqueue", request, work_queue.EnqueueAnswer)

    async def dismiss(self, work: Id) -> Changed:
        """Delete enqueued work that was refused; its key may then be used again."""
        request = work_queue.DismissRequest(work=cast("UUID", work))
        return await self._ask("/enqueued/{work}", request, Changed, "DELETE")

    async def retry(self, *dead_letters: Id, input: Any = UNSET) -> list[letters.LetterResult]:  # noqa: A002
        """Run the work of dead letters again; only a single one may get another input."""
        ids = cast("list[UUID]", list(dead_letters))
        request = letters.RetryRequest(dead_letters=ids, input=input)
        return await self._change_letters("/dead-letters/retry", request)

    async def retry_all(
        self,
        filter: letters.LetterFilter,  # noqa: A002
        *,
        on_page: OnPage = lambda _: None,
    ) -> list[letters.LetterResult]:
        """Run the work of all open dead letters again that match a filter now, page by page."""
        request = letters.RetryRequest(filter=filter)
        return await self._change_letters("/dead-letters/retry", request, on_page)

    async def acknowledge(self, *dead_letters: Id, note: str = "") -> list[letters.LetterResult]:
        """Acknowledge dead letters, which unblocks their manifests."""
        ids = cast("list[UUID]", list(dead_letters))
        request = letters.AcknowledgeRequest(dead_letters=ids, note=note)
        return await self._change_letters("/dead-letters/acknowledge", request)

    async def acknowledge_all(
        self,
        filter: letters.LetterFilter,  # noqa: A002
        *,
        note: str = "",
        on_page: OnPage = lambda _: None,
    ) -> list[letters.LetterResult]:
        """Acknowledge all open dead letters that match a filter now, page by page."""
        request = letters.AcknowledgeRequest(filter=filter, note=note)
        return await self._change_letters("/dead-letters/acknowledge", request, on_page)

    async def cancel(self, id: Id, *, reason: str = "") -> work_queue.CancelResult:  # noqa: A002
        """End a run or work early, even if the dispatcher has not received it yet."""
        request = work_queue.CancelRequest(ids=[cast("UUID", id)], reason=reason)
        answer = await self._ask("/work/cancel", request, work_queue.CancelAnswer)
        [result] = answer.results
        if result.result != "unknown":
            return result
        outstanding = work_queue.CancelOutstandingRequest(work=result.id, reason=reason)
        path = "/work/{work}/cancel"
        found = await self._ask(path, outstanding, work_queue.CancelAnswer)
        return found.results[0] if found.results else result

    async def cancel_manifest(
        self, external_id: str, *, reason: str = ""
    ) -> work_queue.CancelAnswer:
        """End all work of a manifest early, and drop its pending triggers."""
        request = work_queue.CancelOutstandingRequest(manifest=external_id, reason=reason)
        return await self._ask("/manifests/{manifest}/cancel", request, work_queue.CancelAnswer)

    async def cancel_group(self, name: str, *, reason: str = "") -> work_queue.CancelAnswer:
        """End all work of a group early, and drop its pending triggers."""
        request = work_queue.CancelOutstandingRequest(group=name, reason=reason)
        return await self._ask("/groups/{group}/cancel", request, work_queue.CancelAnswer)

    async def drain(self, *workers: str) -> list[operations.DrainResult]:
        """Let workers finish their runs, take no more orders, and exit."""
        request = operations.DrainRequest(workers=list(workers))
        return (await self._ask("/workers/drain", request, operations.DrainAnswer)).results

    async def pause(
        self,
        *external_ids: str,
        group: str | None = None,
        labels: Mapping[str, str] | None = None,
        everything: bool = False,
        until: datetime | None = None,
        reason: str = "",
        dry_run: bool = False,
    ) -> manifests.PauseAnswer:
        """Pause manifests: those named, those of a group or with labels, or all.

        Pauses stack: a manifest resumes when the last pause that covers it has ended. A pause of a
        group, of labels or of all also covers manifests that are declared later.
        """
        chosen = _selection(external_ids, group, labels, everything)
        request = manifests.PauseRequest(**chosen, until=until, reason=reason, dry_run=dry_run)
        return await self._ask("/pause", request, manifests.PauseAnswer)

    async def resume(
        self,
        *external_ids: str,
        group: str | None = None,
        labels: Mapping[str, str] | None = None,
        everything: bool = False,
        pauses: Iterable[Id] = (),
        dry_run: bool = False,
    ) -> manifests.ResumeAnswer:
        """End pauses by their ids, or the one that was made for the same manifests.

        The answer lists what the manifests catch up on. Other pauses stay in force.
        """
        chosen = _selection(external_ids, group, labels, everything)
        ids = cast("list[UUID]", list(pauses))
        request = manifests.ResumeRequest(**chosen, pauses=ids, dry_run=dry_run)
        return await self._ask("/resume", request, manifests.ResumeAnswer)

    async def enable(self, external_id: str) -> Changed:
        """Let a manifest fire; this overrides the code."""
        return await self._change(manifests.ChangeRequest(manifest=external_id, enabled=True))

    async def disable(self, external_id: str) -> Changed:
        """Keep a manifest from firing; this overrides the code."""
        return await self._change(manifests.ChangeRequest(manifest=external_id, enabled=False))

    async def change(
        self,
        external_id: str,
        *,
        attempts: int | UnsetType = UNSET,
        interval: float | UnsetType = UNSET,
        jitter: float | UnsetType = UNSET,
        give_back: Iterable[manifests.ManifestField] = (),
    ) -> Changed:
        """Override fields of a manifest, or reset those in `give_back` to the code."""
        request = manifests.ChangeRequest(
            manifest=external_id,
            attempts=attempts,
            interval_seconds=interval,
            jitter_seconds=jitter,
            give_back=list(give_back),
        )
        return await self._change(request)

    async def change_many(
        self,
        *external_ids: str,
        action: Literal["enable", "disable", "run"],
        group: str | None = None,
        labels: Mapping[str, str] | None = None,
        everything: bool = False,
        dry_run: bool = False,
        key: str | None = None,
    ) -> list[manifests.ManifestResult]:
        """Enable, disable or run manifests: up to 500 named, of a group, with labels, or all."""
        chosen = _selection(external_ids, group, labels, everything)
        request = manifests.ChangeManyRequest(**chosen, action=action, dry_run=dry_run, key=key)
        results: list[manifests.ManifestResult] = []
        for page in itertools.count(2):
            answer = await self._ask("/manifests/many", request, manifests.ManyChanged)
            results += answer.results
            if not answer.more:
                break
            # The same key gets the same first page, so the number of the next page is the same.
            next_key = None if key is None else f"{key}#{page}"
            request = structs.replace(request, after=answer.last, key=next_key)
        return results

    async def change_group(
        self,
        name: str,
        *,
        max_active: int | UnsetType | None = UNSET,
        priority: int | UnsetType = UNSET,
        enabled: bool | UnsetType = UNSET,
        rate: Rate | str | UnsetType | None = UNSET,
        give_back: Iterable[Literal["max_active", "priority", "enabled", "rate"]] = (),
    ) -> Changed:
        """Override settings of a group; `None` removes the limit `max_active` or `rate`."""
        request = operations.ChangeGroupRequest(
            group=name,
            max_active=max_active,
            priority=priority,
            enabled=enabled,
            rate=parse_rate(rate) if isinstance(rate, str) else rate,
            give_back=list(give_back),
        )
        return await self._ask("/groups/{group}", request, Changed, "PATCH")

    async def change_job(
        self,
        name: str,
        *,
        max_active: int | UnsetType | None = UNSET,
        rate: Rate | str | UnsetType | None = UNSET,
        give_back: Iterable[Literal["max_active", "rate"]] = (),
    ) -> Changed:
        """Override limits of a job; `None` removes one, `give_back` resets it to the code."""
        request = operations.ChangeJobRequest(
            job=name,
            max_active=max_active,
            rate=parse_rate(rate) if isinstance(rate, str) else rate,
            give_back=list(give_back),
        )
        return await self._ask("/jobs/{job}", request, Changed, "PATCH")

    async def test_notification(self) -> Changed:
        """Send a test notification to the webhook; raise `Rejected` if it is not accepted."""
        return await self._ask("/notifications/test", operations.NotifyTestRequest(), Changed)

    async def delete(self, external_id: str, *, key: str | None = None) -> Changed:
        """Delete a manifest that no code declares, with its work, dead letters and runs."""
        request = manifests.DeleteRequest(manifest=external_id, key=key)
        return await self._ask("/manifests/{manifest}", request, Changed, "DELETE")

    async def rename_app(self, name: str, to: str, *, key: str | None = None) -> Changed:
        """Move all that an application owns to another name, with its history."""
        request = definitions.RenameAppRequest(app=name, to=to, key=key)
        return await self._ask("/apps/{app}/rename", request, Changed)

    async def retire_app(self, name: str, *, key: str | None = None) -> Changed:
        """Delete the manifests of an application with all runs, and retire its jobs."""
        request = definitions.RetireAppRequest(app=name, key=key)
        return await self._ask("/apps/{app}/retire", request, Changed)

    async def give_back_app(self, name: str, *, key: str | None = None) -> Changed:
        """Let code declare an application again that files took over."""
        request = definitions.GiveBackAppRequest(app=name, key=key)
        return await self._ask("/apps/{app}/give-back", request, Changed)

    async def _change(self, request: manifests.ChangeRequest) -> Changed:
        return await self._ask("/manifests/{manifest}", request, Changed, "PATCH")

    async def _change_letters(
        self, path: str, request: Any, on_page: OnPage = lambda _: None
    ) -> list[letters.LetterResult]:
        """Change dead letters page by page; later dead letters are left out."""
        results: list[letters.LetterResult] = []
        while True:
            page = await self._ask(path, request, letters.LettersChanged)
            results += page.results
            on_page(results)
            if not page.more:
                return results
            bounded = structs.replace(request.filter, created_before=page.created_before)
            request = structs.replace(request, filter=bounded, after=page.last)


def _selection(
    external_ids: Iterable[str],
    group: str | None,
    labels: Mapping[str, str] | None,
    everything: bool,
) -> dict[str, Any]:
    """Return the fields of a request that select manifests."""
    names, with_labels = list(external_ids), dict(labels or {})
    return {"manifests": names, "group": group, "labels": with_labels, "all": everything}
