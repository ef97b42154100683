"""Change manifests, groups, jobs and applications, as operators do."""

import itertools
from collections.abc import Iterable, Mapping
from typing import Literal

from headway_contract.applications import GiveBackAppRequest, RenameAppRequest, RetireAppRequest
from headway_contract.operating import (
    ChangeManyRequest,
    ManifestChanged,
    ManyChanged,
    NotifyTestRequest,
)
from headway_contract.scheduling import (
    Changed,
    ChangeGroupRequest,
    ChangeJobRequest,
    ChangeRequest,
    DeleteRequest,
    ManifestField,
)
from headway_contract.work import Rate
from headway_decisions.capacity.rates import parse_rate
from msgspec import UNSET, UnsetType, structs

from headway.client.control import PATIENT_SECONDS, Asking


class Changes(Asking):
    """The part of a client that changes what operators own."""

    async def enable(self, external_id: str) -> Changed:
        """Let a manifest fire; code no longer decides whether it does."""
        return await self._change(ChangeRequest(manifest=external_id, enabled=True))

    async def disable(self, external_id: str) -> Changed:
        """Keep a manifest from firing; code no longer decides whether it does."""
        return await self._change(ChangeRequest(manifest=external_id, enabled=False))

    async def change(
        self,
        external_id: str,
        *,
        attempts: int | UnsetType = UNSET,
        interval: float | UnsetType = UNSET,
        jitter: float | UnsetType = UNSET,
        give_back: Iterable[ManifestField] = (),
    ) -> Changed:
        """Change fields of a manifest, which code then no longer decides, or give them back."""
        request = ChangeRequest(
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
    ) -> list[ManifestChanged]:
        """Enable, disable or run manifests: up to 500 named, of a group, with labels, or all.

        The results tell of each. With `dry_run` they only name those that are meant. The same key
        does it only once.
        """
        request = ChangeManyRequest(
            manifests=list(external_ids),
            group=group,
            labels=dict(labels or {}),
            all=everything,
            action=action,
            dry_run=dry_run,
            key=key,
        )
        results: list[ManifestChanged] = []
        for page in itertools.count(2):
            answer = await self._console.ask(
                "POST", "/manifests/many", request, ManyChanged, timeout=PATIENT_SECONDS
            )
            results += answer.results
            if not answer.more:
                break
            # The first page is answered alike for its key, so its next page has the same number.
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
        """Change the settings of a group; none for `max_active` or `rate` lifts that limit."""
        request = ChangeGroupRequest(
            group=name,
            max_active=max_active,
            priority=priority,
            enabled=enabled,
            rate=parse_rate(rate) if isinstance(rate, str) else rate,
            give_back=list(give_back),
        )
        return await self._console.ask("PATCH", "/groups/{group}", request, Changed)

    async def change_job(
        self,
        name: str,
        *,
        max_active: int | UnsetType | None = UNSET,
        rate: Rate | str | UnsetType | None = UNSET,
        give_back: Iterable[Literal["max_active", "rate"]] = (),
    ) -> Changed:
        """Change the limits of a job; none lifts one. What is given back is the code's again."""
        request = ChangeJobRequest(
            job=name,
            max_active=max_active,
            rate=parse_rate(rate) if isinstance(rate, str) else rate,
            give_back=list(give_back),
        )
        return await self._console.ask("PATCH", "/jobs/{job}", request, Changed)

    async def test_notification(self) -> Changed:
        """Send a test notification to the webhook now; raises `Rejected` if it was not taken."""
        return await self._console.ask(
            "POST",
            "/notifications/test",
            NotifyTestRequest(),
            Changed,
            timeout=PATIENT_SECONDS,
        )

    async def delete(self, external_id: str, *, key: str | None = None) -> Changed:
        """Delete a manifest that no code declares, with its work, dead letters and runs.

        The same key does it only once.
        """
        request = DeleteRequest(manifest=external_id, key=key)
        return await self._console.ask("DELETE", "/manifests/{manifest}", request, Changed)

    async def rename_app(self, name: str, to: str, *, key: str | None = None) -> Changed:
        """Give all that an application owns to another name, with its history."""
        request = RenameAppRequest(app=name, to=to, key=key)
        return await self._console.ask(
            "POST", "/apps/{app}/rename", request, Changed, timeout=PATIENT_SECONDS
        )

    async def retire_app(self, name: str, *, key: str | None = None) -> Changed:
        """Delete the manifests of an application with all runs, and retire its jobs."""
        request = RetireAppRequest(app=name, key=key)
        return await self._console.ask(
            "POST", "/apps/{app}/retire", request, Changed, timeout=PATIENT_SECONDS
        )

    async def give_back_app(self, name: str, *, key: str | None = None) -> Changed:
        """Let the code of an application declare it again that files took over."""
        request = GiveBackAppRequest(app=name, key=key)
        return await self._console.ask("POST", "/apps/{app}/give-back", request, Changed)

    async def _change(self, request: ChangeRequest) -> Changed:
        return await self._console.ask("PATCH", "/manifests/{manifest}", request, Changed)
