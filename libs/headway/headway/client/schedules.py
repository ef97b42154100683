"""Plan and apply definitions, and create manifests at run time."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Unpack

from headway_clock import new_nonce
from headway_contract.definitions import ApplyAnswer, ApplyRequest, PrunePolicy
from headway_contract.manifests import BackfillAnswer, BackfillRequest

from headway.client.reads import Reads
from headway.define import cadences
from headway.define.assembly import assemble_at_run_time
from headway.define.declarations import BatchDraft, Configure, Draft, Items, Terms
from headway.define.definitions import Definitions
from headway.define.keywords import check_keywords
from headway.define.packing import pack
from headway.define.when import When

_LONGEST_DELAY = timedelta(days=10 * 366)


class Schedules(Reads):
    """A client that also declares manifests."""

    @check_keywords
    async def plan(
        self,
        definitions: Definitions,
        *,
        prune: PrunePolicy | None = None,
        days: int = 7,
        take_over: bool = False,
    ) -> ApplyAnswer:
        """Return what `apply` would change, and which fire times in the next days."""
        packed = pack(definitions)
        request = ApplyRequest(definitions=packed, prune=prune, days=days, take_over=take_over)
        return await self._ask("/plan", request, ApplyAnswer)

    @check_keywords
    async def apply(
        self, definitions: Definitions, *, prune: PrunePolicy | None = None, take_over: bool = False
    ) -> ApplyAnswer:
        """Store definitions, all of them or none, and prune manifests that they no longer name.

        An application that code declares is refused, unless the definitions `take_over`.
        """
        packed = pack(definitions)
        request = ApplyRequest(definitions=packed, prune=prune, days=0, take_over=take_over)
        return await self._ask("/apply", request, ApplyAnswer)

    @check_keywords
    async def schedule(
        self,
        external_id: str,
        *,
        job: str,
        when: When | None = None,
        input: Any = None,  # noqa: A002
        depends_on: str | None = None,
        dormant: bool = False,
        **terms: Unpack[Terms],
    ) -> ApplyAnswer:
        """Create or change a manifest of a job that some application has declared.

        It fires by its cadence, or after each success of `depends_on`, a manifest of any
        application. A `dormant` one fires only when a run of that manifest activates it. Terms
        that are not set follow the job.
        """
        draft = Draft(external_id, job, when, input, terms, depends_on, dormant)
        return await self.apply(assemble_at_run_time(draft))

    @check_keywords
    async def schedule_many(
        self,
        name: str,
        *,
        job: str,
        items: Items,
        when: When | None = None,
        key: Callable[[Any], str | int] | None = None,
        prune: bool = True,
        configure: Configure | None = None,
        depends_on: str | None = None,
        dormant: bool = False,
        **terms: Unpack[Terms],
    ) -> ApplyAnswer:
        """Create a manifest for each item, like `App.schedule_many`."""
        batch = BatchDraft(
            name=name, job=job, items=items, when=when, key=key, prune=prune, configure=configure,
            depends_on=depends_on, dormant=dormant, terms=terms,
        )  # fmt: skip
        return await self.apply(assemble_at_run_time(batch))

    @check_keywords
    async def once(
        self,
        job: str,
        *,
        input: Any = None,  # noqa: A002
        at: datetime | None = None,
        delay: float | timedelta | None = None,
        id: str | None = None,  # noqa: A002
        **terms: Unpack[Terms],
    ) -> str:
        """Run a job once, at a time or after a delay in seconds; return the manifest's id."""
        external_id = id or f"once-{new_nonce()}"
        when = cadences.once(_wall_time(at, delay, self._now()), tz="UTC")
        await self.schedule(external_id, job=job, when=when, input=input, **terms)
        return external_id

    @check_keywords
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

        They run oldest first, as many at once as may overlap. `missed_only` leaves out
        occurrences that fired on schedule; `dry_run` only counts.
        """
        request = BackfillRequest(
            manifest=external_id,
            since=since,
            until=until,
            missed_only=missed_only,
            priority=priority,
            dry_run=dry_run,
        )
        return await self._ask("/manifests/{manifest}/backfill", request, BackfillAnswer)


def _wall_time(at: datetime | None, delay: float | timedelta | None, now: datetime) -> datetime:
    """Return the time of a one-shot in UTC, rounded up to whole seconds."""
    if (at is None) == (delay is None):
        raise ValueError("once() takes either at= or delay=")
    if delay is not None:
        try:
            length = delay if isinstance(delay, timedelta) else timedelta(seconds=delay)
        except (OverflowError, TypeError, ValueError) as error:
            raise ValueError(f"once(delay={delay!r}): write a number of seconds") from error
        if not timedelta(0) <= length <= _LONGEST_DELAY:
            raise ValueError(f"once(delay={delay!r}): use a delay from 0 to ten years")
        at = now + length
    if not isinstance(at, datetime) or at.tzinfo is None:
        raise ValueError(f"once(at=...) takes a datetime with a zone, not {at!r}")
    at = at.astimezone(UTC)
    rounded = at if at.microsecond == 0 else at.replace(microsecond=0) + timedelta(seconds=1)
    return rounded.replace(tzinfo=None)
