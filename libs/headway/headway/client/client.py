"""A client for whoever wants to look at Headway, or to change it, from a program.

    async with Client("nats://127.0.0.1:4222") as headway:
        for manifest in await headway.manifests():
            print(manifest.external_id, manifest.next_due_at)
        await headway.schedule("nightly-x", job="cleanup", when=daily("03:15"))

It asks the services over NATS, and so needs no access to the database. With the URL of a console
(`https://…`) and a `token` it asks over HTTP instead; the audit then says whose token it was.
Manifests that it makes belong to nobody's code: no start of an application prunes them.
"""

import getpass
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack
from uuid import UUID

from headway_clock import new_nonce, utc_now
from headway_contract import subjects
from headway_contract.scheduling import (
    ApplyAnswer,
    ApplyRequest,
    BackfillAnswer,
    BackfillRequest,
    Changed,
    DismissRequest,
    EnqueueAnswer,
    EnqueuedAnswer,
    EnqueuedQuestion,
    EnqueuedStatus,
    EnqueueRequest,
    ExplainAnswer,
    ExplainQuestion,
    GroupsAnswer,
    GroupsQuestion,
    GroupStatus,
    LedgerAnswer,
    LedgerQuestion,
    ManifestAnswer,
    ManifestQuestion,
    ManifestsAnswer,
    ManifestsQuestion,
    ManifestStatus,
    PreviewAnswer,
    PreviewQuestion,
    PrunePolicy,
    TriggerAnswer,
    TriggerRequest,
)
from headway_contract.waiting import ExplainWorkAnswer, ExplainWorkQuestion
from headway_errors import RequestFailed as RequestFailed
from headway_tracing import traceparent
from msgspec import UNSET, structs

from headway.client.changes import Changes
from headway.client.control import PATIENT_SECONDS, Control
from headway.client.nats_control import NatsControl
from headway.client.operations import Operations
from headway.client.pauses import Pauses
from headway.define import cadences
from headway.define.batches import Configure, Items
from headway.define.declarations import Terms
from headway.define.definitions import Definitions
from headway.define.packing import pack
from headway.define.runtime_definitions import one_batch, one_manifest
from headway.define.when import When

if TYPE_CHECKING:
    from headway.client.http_control import HttpControl

# How many manifests one question asks for: an answer has to fit into one message.
PAGE = 500


def login_name() -> str:
    """Who asks, for the audit."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        # A container may run as a number that has no name.
        return "unknown"


class Client(Operations, Pauses, Changes):
    """One connection to Headway's services. `actor` is who the audit says asked, over NATS.

    `now` is what delays are counted from; a world of `headway.testing` has a clock of its own.
    """

    def __init__(
        self,
        nats_url: str = "",
        *,
        credentials: str | None = None,
        token: str | None = None,
        actor: str | None = None,
        control: Control | None = None,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._url = nats_url
        self._credentials = credentials
        self._token = token
        self._actor = login_name() if actor is None else actor
        self._given = control
        self._now = now
        self._opened: NatsControl | HttpControl | None = None

    async def __aenter__(self) -> Self:
        """Connect; raises `RequestFailed` if NATS cannot be reached."""
        if self._given is None and self._url.startswith(("http://", "https://")):
            # Not everybody has installed what speaks HTTP: pip install 'headway[http]'.
            from headway.client.http_control import HttpControl  # noqa: PLC0415

            self._opened = HttpControl(self._url, token=self._token)
        elif self._given is None:
            self._opened = await NatsControl.connect(self._url, credentials=self._credentials)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connection."""
        if self._opened is not None:
            await self._opened.close()

    async def manifests(self) -> list[ManifestStatus]:
        """Every manifest and how it stands, in the order of their ids."""
        found: list[ManifestStatus] = []
        after = ""
        while True:
            question = ManifestsQuestion(after=after, limit=PAGE)
            page = await self._control.ask(subjects.MANIFESTS_QUESTION, question, ManifestsAnswer)
            found += page.manifests
            if not page.more:
                return found
            after = page.last or found[-1].external_id

    async def manifest(self, external_id: str) -> ManifestAnswer:
        """One manifest: how it stands, how it is defined, what operators have changed."""
        question = ManifestQuestion(manifest=external_id)
        return await self._control.ask(subjects.MANIFEST_QUESTION, question, ManifestAnswer)

    async def groups(self) -> list[GroupStatus]:
        """Every group and how it stands, in the order of their names."""
        found: list[GroupStatus] = []
        after = ""
        while True:
            question = GroupsQuestion(after=after, limit=PAGE)
            page = await self._control.ask(subjects.GROUPS_QUESTION, question, GroupsAnswer)
            found += page.groups
            if not page.more:
                return found
            after = page.last or found[-1].name

    async def preview(
        self,
        external_id: str,
        count: int = 20,
        *,
        after: datetime | None = None,
        each: bool = False,
    ) -> PreviewAnswer:
        """The next times at which a manifest fires, from now or from an instant on.

        Excluded times between them are folded; with `each` all due times count alike.
        """
        question = PreviewQuestion(manifest=external_id, count=count, after=after, each=each)
        return await self._control.ask(
            subjects.PREVIEW_QUESTION, question, PreviewAnswer, timeout=PATIENT_SECONDS
        )

    async def explain(self, external_id: str, *, at: datetime | None = None) -> ExplainAnswer:
        """Why a manifest ran or did not at an instant, or how it stands now."""
        question = ExplainQuestion(manifest=external_id, at=at)
        return await self._control.ask(subjects.EXPLAIN_QUESTION, question, ExplainAnswer)

    async def explain_work(self, work: UUID | str) -> ExplainWorkAnswer:
        """Why a piece of work waits: its gates, who holds the slots, and when it may start."""
        question = ExplainWorkQuestion(work=_work_id(work))
        return await self._control.ask(subjects.EXPLAIN_WORK_QUESTION, question, ExplainWorkAnswer)

    async def ledger(
        self,
        external_id: str | None = None,
        *,
        since: datetime | None = None,
        on_page: Callable[[LedgerAnswer], None] = lambda _: None,
    ) -> LedgerAnswer:
        """Compare what should have fired with what the ledger tells, of one manifest or all.

        `on_page` is told the answer so far, whenever there is more.
        """
        total = LedgerAnswer()
        questions = [LedgerQuestion(manifest=external_id, since=since)]
        while questions:
            question = questions.pop()
            page = await self._control.ask(
                subjects.LEDGER_QUESTION, question, LedgerAnswer, timeout=PATIENT_SECONDS
            )
            total = _added(total, page)
            on_page(total)
            if page.more:
                questions.append(structs.replace(question, after=page.last))
            questions += [
                LedgerQuestion(manifest=name, since=start)
                for name, start in page.unfinished.items()
            ]
        return total

    async def plan(
        self,
        definitions: Definitions,
        *,
        prune: PrunePolicy | None = None,
        days: int = 7,
        take_over: bool = False,
    ) -> ApplyAnswer:
        """What applying definitions would change, and which fire times in the next days."""
        return await self._send(
            subjects.PLAN_QUESTION, definitions, prune, days=days, take_over=take_over
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
        return await self._send(
            subjects.APPLY_REQUEST, definitions, prune, days=0, take_over=take_over
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

    async def trigger(
        self,
        external_id: str,
        *,
        input: Any = UNSET,  # noqa: A002
        delay: float = 0.0,
        priority: int | None = None,
        start_within: float | timedelta | None = None,
        key: str | None = None,
    ) -> TriggerAnswer:
        """Run a manifest now, or after a delay in seconds; the same key triggers only once.

        Work that has not begun within `start_within` seconds of when it may expires.
        """
        request = TriggerRequest(
            manifest=external_id,
            key=key,
            input=input,
            delay_seconds=delay,
            priority=priority,
            start_within_seconds=start_within.total_seconds()
            if isinstance(start_within, timedelta)
            else start_within,
            actor=self._actor,
        )
        return await self._control.ask(subjects.TRIGGER_REQUEST, request, TriggerAnswer)

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

        They run oldest first, one after the other or as many at once as `allow` lets. With
        `missed_only` those that fired on schedule are left out; `dry_run` only counts.
        """
        request = BackfillRequest(
            manifest=external_id,
            since=since,
            until=until,
            missed_only=missed_only,
            priority=priority,
            dry_run=dry_run,
            actor=self._actor,
        )
        return await self._control.ask(
            subjects.BACKFILL_REQUEST, request, BackfillAnswer, timeout=PATIENT_SECONDS
        )

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
    ) -> EnqueueAnswer:
        """Queue work of a declared job; inside a transaction of your own use `headway.enqueue`."""
        request = EnqueueRequest(
            job=job,
            input=input,
            group=group,
            priority=priority,
            delay_seconds=delay,
            not_before=not_before,
            start_by=start_by,
            key=key,
            traceparent=traceparent(),
            actor=self._actor,
        )
        return await self._control.ask(subjects.ENQUEUE_REQUEST, request, EnqueueAnswer)

    async def enqueued(self, *, refused_only: bool = False) -> list[EnqueuedStatus]:
        """What was enqueued and waits to be taken up, or was refused, the oldest first."""
        found: list[EnqueuedStatus] = []
        while True:
            question = EnqueuedQuestion(
                after=found[-1].enqueued_at if found else None,
                limit=PAGE,
                refused_only=refused_only,
            )
            page = await self._control.ask(subjects.ENQUEUED_QUESTION, question, EnqueuedAnswer)
            found += page.enqueued
            if not page.more:
                return found

    async def dismiss(self, work: UUID) -> Changed:
        """Forget work that was enqueued and refused; its key may then be used again."""
        request = DismissRequest(work=work, actor=self._actor)
        return await self._control.ask(subjects.DISMISS_REQUEST, request, Changed)

    @property
    def _control(self) -> Control:
        control = self._given or self._opened
        if control is None:
            raise RequestFailed("the client is not connected: use it as 'async with Client(...)'")
        return control

    async def _send(
        self,
        subject: str,
        definitions: Definitions,
        prune: PrunePolicy | None,
        *,
        days: int,
        take_over: bool,
    ) -> ApplyAnswer:
        request = ApplyRequest(
            definitions=pack(definitions),
            prune=prune,
            days=days,
            take_over=take_over,
            actor=self._actor,
        )
        return await self._control.ask(subject, request, ApplyAnswer, timeout=PATIENT_SECONDS)


def _work_id(given: UUID | str) -> UUID:
    try:
        return given if isinstance(given, UUID) else UUID(given)
    except ValueError:
        raise RequestFailed(
            f"{given!r} is no id of work, which looks like {UUID(int=0)}: "
            "'headway explain <manifest>' names those of a manifest"
        ) from None


def _added(total: LedgerAnswer, page: LedgerAnswer) -> LedgerAnswer:
    """Two answers as one; a manifest that is asked about again counts once."""
    return LedgerAnswer(
        manifests=total.manifests + page.manifests - len(page.unfinished),
        fire_times=total.fire_times + page.fire_times,
        gaps=list(dict.fromkeys([*total.gaps, *page.gaps])),
        last=max(total.last, page.last),
    )


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
