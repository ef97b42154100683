"""Plan and apply definitions, and make manifests at run time."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Unpack

from headway_clock import new_nonce
from headway_contract.scheduling import ApplyAnswer, ApplyRequest, PrunePolicy

from headway.client.control import PATIENT_SECONDS, Asking
from headway.define import cadences
from headway.define.chain import Configure, Items
from headway.define.declarations import Terms
from headway.define.definitions import Definitions
from headway.define.packing import pack
from headway.define.runtime_definitions import one_batch, one_manifest
from headway.define.when import When


class Schedules(Asking):
    """The part of a client that declares."""

    _now: Callable[[], datetime]

    async def plan(
        self,
        definitions: Definitions,
        *,
        prune: PrunePolicy | None = None,
        days: int = 7,
        take_over: bool = False,
    ) -> ApplyAnswer:
        """What applying definitions would change, and which fire times in the next days."""
        request = ApplyRequest(
            definitions=pack(definitions), prune=prune, days=days, take_over=take_over
        )
        return await self._console.ask(
            "POST", "/plan", request, ApplyAnswer, timeout=PATIENT_SECONDS
        )

    async def apply(
        self,
        definitions: Definitions,
        *,
        prune: PrunePolicy | None = None,
        take_over: bool = False,
    ) -> ApplyAnswer:
        """Store definitions, all of them or none, and prune what they no longer name.

        An application that its code declares is refused, unless they `take_over`.
        """
        request = ApplyRequest(
            definitions=pack(definitions), prune=prune, days=0, take_over=take_over
        )
        return await self._console.ask(
            "POST", "/apply", request, ApplyAnswer, timeout=PATIENT_SECONDS
        )

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
        """Make or change one manifest of a job that some application has declared.

        It fires by its cadence, or after each success of `depends_on`, which may be a manifest of
        any application; if it is `dormant`, only when a run of that says so. Terms that are left
        out are those of the job, and follow it when it is declared differently.
        """
        definitions = one_manifest(
            external_id, job=job, when=when, given=input, depends_on=depends_on,
            dormant=dormant, terms=terms,
        )  # fmt: skip
        return await self.apply(definitions)

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
        """Make one manifest for each item, as `App.schedule_many` does; with `prune`, delete
        those of the batch whose item is gone.
        """
        definitions = one_batch(
            name, job=job, items=items, when=when, key=key, prune=prune, configure=configure,
            depends_on=depends_on, dormant=dormant, terms=terms,
        )  # fmt: skip
        return await self.apply(definitions)

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
        """Run a job once, at a time or after a delay in seconds; returns the manifest's id."""
        external_id = id or f"once-{new_nonce()}"
        when = cadences.once(_wall_time(at, delay, self._now), tz="UTC")
        await self.schedule(external_id, job=job, when=when, input=input, **terms)
        return external_id


def _wall_time(
    at: datetime | None, delay: float | timedelta | None, now: Callable[[], datetime]
) -> datetime:
    """When a one-shot is due, on the clock of UTC; whole seconds, never too early."""
    if (at is None) == (delay is None):
        raise ValueError("once() takes either at= or delay=")
    if delay is not None:
        at = now() + _delay(delay)
    if not isinstance(at, datetime):
        raise ValueError(f"once(at=...) takes a datetime with its zone, and {at!r} is none")
    if at.tzinfo is None:
        raise ValueError(f"once(at=...) takes a time with its zone, and {at} has none")
    at = at.astimezone(UTC)
    rounded = at if at.microsecond == 0 else at.replace(microsecond=0) + timedelta(seconds=1)
    return rounded.replace(tzinfo=None)


_LONGEST_DELAY = timedelta(days=10 * 366)


def _delay(given: float | timedelta) -> timedelta:
    try:
        delay = given if isinstance(given, timedelta) else timedelta(seconds=given)
    except (OverflowError, TypeError, ValueError) as error:
        raise ValueError(f"once(delay={given!r}): write a number of seconds") from error
    if not timedelta(0) <= delay <= _LONGEST_DELAY:
        raise ValueError(f"once(delay={given!r}): a delay is between none and ten years")
    return delay
