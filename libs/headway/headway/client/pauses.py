"""Pause and resume manifests."""

from collections.abc import Mapping
from datetime import datetime

from headway_contract.pausing import PauseAnswer, PauseRequest, ResumeAnswer, ResumeRequest

from headway.client.control import Asking


class Pauses(Asking):
    """The part of a client that pauses manifests and resumes them."""

    async def pause(
        self,
        *external_ids: str,
        group: str | None = None,
        labels: Mapping[str, str] | None = None,
        everything: bool = False,
        until: datetime | None = None,
        reason: str = "",
        dry_run: bool = False,
    ) -> PauseAnswer:
        """Let nothing of some manifests begin: those named, of a group, with labels, or all."""
        request = PauseRequest(
            manifests=list(external_ids),
            group=group,
            labels=dict(labels or {}),
            all=everything,
            until=until,
            reason=reason,
            dry_run=dry_run,
        )
        return await self._console.ask("POST", "/pause", request, PauseAnswer)

    async def resume(
        self,
        *external_ids: str,
        group: str | None = None,
        labels: Mapping[str, str] | None = None,
        everything: bool = False,
        dry_run: bool = False,
    ) -> ResumeAnswer:
        """End the pause of some manifests; the answer says what they make good.

        With `dry_run` it says what they would, and changes nothing.
        """
        request = ResumeRequest(
            manifests=list(external_ids),
            group=group,
            labels=dict(labels or {}),
            all=everything,
            dry_run=dry_run,
        )
        return await self._console.ask("POST", "/resume", request, ResumeAnswer)
