"""What the client asks of the scheduler to change: manifests, groups and jobs, as operators do."""

from collections.abc import Iterable
from typing import Literal

from headway_contract import subjects
from headway_contract.operating import ChangeManyRequest, ManifestChanged, ManyChanged
from headway_contract.scheduling import (
    Changed,
    ChangeGroupRequest,
    ChangeJobRequest,
    ChangeRequest,
    DeleteRequest,
)
from headway_contract.work import Rate
from headway_decisions.rates import parse_rate
from msgspec import UNSET, UnsetType

from headway.control import PATIENT_SECONDS, Asking


class Changes(Asking):
    """The part of a client that changes what operators own."""

    async def enable(self, external_id: str) -> Changed:
        """Let a manifest fire; code no longer decides whether it does."""
        return await self._change(
            ChangeRequest(manifest=external_id, enabled=True, actor=self._actor)
        )

    async def disable(self, external_id: str) -> Changed:
        """Keep a manifest from firing; code no longer decides whether it does."""
        return await self._change(
            ChangeRequest(manifest=external_id, enabled=False, actor=self._actor)
        )

    async def change(
        self,
        external_id: str,
        *,
        attempts: int | UnsetType = UNSET,
        interval: float | UnsetType = UNSET,
        jitter: float | UnsetType = UNSET,
        give_back: Iterable[Literal["enabled", "retry", "jitter"]] = (),
    ) -> Changed:
        """Change what operators own of a manifest; what is given back is the code's again."""
        request = ChangeRequest(
            manifest=external_id,
            attempts=attempts,
            interval_seconds=interval,
            jitter_seconds=jitter,
            give_back=list(give_back),
            actor=self._actor,
        )
        return await self._change(request)

    async def change_many(
        self,
        *external_ids: str,
        action: Literal["enable", "disable", "run"],
        key: str | None = None,
    ) -> list[ManifestChanged]:
        """Enable, disable or run up to 500 manifests in one request; tells of each.

        The same key does it only once.
        """
        request = ChangeManyRequest(
            manifests=list(external_ids), action=action, key=key, actor=self._actor
        )
        answer = await self._control.ask(
            subjects.CHANGE_MANY_REQUEST, request, ManyChanged, timeout=PATIENT_SECONDS
        )
        return answer.results

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
            actor=self._actor,
        )
        return await self._control.ask(subjects.CHANGE_GROUP_REQUEST, request, Changed)

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
            actor=self._actor,
        )
        return await self._control.ask(subjects.CHANGE_JOB_REQUEST, request, Changed)

    async def delete(self, external_id: str, *, key: str | None = None) -> Changed:
        """Delete a manifest that no code declares, with its work, dead letters and runs.

        The same key does it only once.
        """
        request = DeleteRequest(manifest=external_id, actor=self._actor, key=key)
        return await self._control.ask(subjects.DELETE_REQUEST, request, Changed)

    async def _change(self, request: ChangeRequest) -> Changed:
        return await self._control.ask(subjects.CHANGE_REQUEST, request, Changed)
