"""Gather and decide: read locked manifests, judge them, build ledger rows and messages.

Nothing is written here: the tick records the decisions.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import groupby
from typing import Any, Self
from uuid import UUID

import msgspec
from headway.define.inputs import problem_of_input, schema_id
from headway_contract import Event, event, subjects
from headway_contract.notifications import FiresMissed
from headway_contract.work import WorkQueued, WorkTerms
from headway_decisions.capacity.keys import InvalidKey, render_key
from headway_decisions.firing import identity, manifest_state
from headway_decisions.firing.jitter import fire_at
from headway_decisions.timing.timing import Timing
from headway_postgres_kit import Connection, driver
from headway_relay import OutboxMessage, bundled
from headway_tracing import is_recording, new_trace, traceparent
from msgspec import Struct, structs

from headway_scheduler.metrics import FIRE_LATENESS, FIRES, SKIPS, Sample
from headway_scheduler.notifications.recorder import Notification
from headway_scheduler.store import SOURCE, manifests

# Manifests that are judged between two awaits.
_JUDGED_AT_ONCE = 25

# Work that follows a parent goes before scheduled work.
_DEPENDENT_BOOST = 16
_BY_PARENTS = ("success", "activation")
_HIGHEST_PRIORITY = 31

# A rule takes the view of a manifest and `now`.
Rule = Callable[..., manifest_state.Verdict]


class LedgerRow(manifest_state.Entry, frozen=True, kw_only=True):
    """One decision, with the values for its work if it makes any.

    `release` marks an owed decision, which is in the ledger already.
    """

    manifest: UUID
    work: UUID | None = None
    actor: str | None = None
    explicit: bool = False
    has_input: bool = False
    input: Any = None
    not_before: datetime | None = None
    priority: int | None = None
    start_within_seconds: float | None = None
    release: bool = False
    concurrency_key: str | None = None
    # The trace of the trigger or activation.
    traceparent: str | None = None
    # When an owed decision was made.
    decided_at: datetime | None = None

    @classmethod
    def owed(cls, manifest: UUID, cause: str, at: datetime, **fields: Any) -> Self:
        """Return a decision that is queued as soon as there is room."""
        fields = {"decision": "owed", "reason": manifest_state.AWAITS_ROOM, **fields}
        return cls(manifest=manifest, cause=cause, first_due_at=at, last_due_at=at, **fields)

    @property
    def key(self) -> tuple[UUID, str]:
        """Return the unique key of the decision."""
        return self.manifest, self.cause

    @property
    def due_at(self) -> datetime | None:
        """Return the due time of a scheduled fire, or `None`."""
        return self.first_due_at if self.cause.startswith("due:") else None

    @property
    def made_at(self) -> datetime:
        """Return when the work was made; the due time of a backfill is long past."""
        backfilled = identity.kind_of(self.cause) == "backfill"
        return self.decided_at if backfilled and self.decided_at else self.first_due_at


class Manifest(Struct, frozen=True, kw_only=True):
    """A manifest: its view for the rules, and the values for its work."""

    view: manifest_state.ManifestView
    job: str
    group: str
    input: Any
    input_schema: dict[str, Any] | None
    input_schema_id: str | None
    takes_input: bool
    terms: WorkTerms
    owed: dict[str, LedgerRow]
    # The trace of its parent's last success.
    parent_traceparent: str | None = None

    @property
    def external_id(self) -> str:
        """Return the id that users know."""
        return self.view.external_id


class UnreadableManifest(Struct, frozen=True, kw_only=True):
    """A manifest whose row cannot be decoded, for example because a newer version wrote it."""

    id: UUID
    trouble: str


class Decided(Struct, frozen=True, kw_only=True):
    """The decision about one manifest, and its ledger rows."""

    manifest: Manifest
    verdict: manifest_state.Verdict
    rows: list[LedgerRow]


async def read_manifests(
    connection: Connection, ids: Iterable[UUID], *, now: datetime
) -> list[Manifest | UnreadableManifest]:
    """Read manifests in the order of their ids; the caller has locked them."""
    return [read_manifest(row, now=now) for row in await read_rows(connection, ids)]


async def read_rows(connection: Connection, ids: Iterable[UUID]) -> list[driver.Record]:
    """Fetch the rows of manifests for `read_manifest`."""
    return await connection.fetch(manifests["views"], list(ids))


def read_manifest(row: Any, *, now: datetime) -> Manifest | UnreadableManifest:
    """Decode one manifest."""
    try:
        return _manifest(row, now)
    except msgspec.ValidationError as error:
        return UnreadableManifest(id=row["id"], trouble=f"its record: {error}")


# Thousands of manifests share few timings, policies and terms.
_timing = lru_cache(maxsize=4096)(msgspec.json.Decoder(Timing).decode)
_misfire = lru_cache(maxsize=256)(msgspec.json.Decoder(manifest_state.Misfire).decode)
_overlap = lru_cache(maxsize=256)(msgspec.json.Decoder(manifest_state.Overlap).decode)
_terms = lru_cache(maxsize=1024)(msgspec.json.Decoder(WorkTerms).decode)
_windows = lru_cache(maxsize=1024)(msgspec.json.Decoder(tuple[manifest_state.Window, ...]).decode)


@lru_cache(maxsize=1024)
def read_schema(text: str | None) -> tuple[dict[str, Any] | None, str | None]:
    """Decode the schema of a job; returns also its id."""
    schema = None if text is None else msgspec.json.decode(text)
    return schema, schema_id(schema)


def _manifest(row: Any, now: datetime) -> Manifest:
    owed = [msgspec.convert(entry, LedgerRow) for entry in row["owed"] or ()]
    input_schema, input_schema_id = read_schema(row["input_schema"])
    delayed = [entry.not_before for entry in owed if entry.not_before and entry.not_before > now]
    view = manifest_state.ManifestView(
        id=row["id"],
        external_id=row["external_id"],
        timing=_timing(row["timing"]),
        next_due_at=row["next_due_at"],
        jitter_seconds=row["jitter_seconds"],
        misfire=_misfire(row["misfire"]),
        overlap=_overlap(row["overlap"]),
        hold=manifest_state.hold_of(row),
        also_disabled=not row["group_enabled"] and not row["enabled"],
        slots=tuple(row["slots"]),
        owed=tuple(
            manifest_state.Owed(cause=entry.cause, explicit=entry.explicit)
            for entry in owed
            if entry.not_before is None or entry.not_before <= now
        ),
        next_owed_at=min(delayed, default=None),
        settled_at=row["last_settled_at"],
        parent=row["depends_on"],
        parent_success=None if row["dormant"] else row["parent_success"],
        seen_success=row["seen_success"],
        windows=_windows(row["pauses"]),
    )
    return Manifest(
        view=view,
        job=row["job"],
        group=row["group_name"],
        input=row["input"],
        input_schema=input_schema,
        input_schema_id=input_schema_id,
        takes_input=row["takes_input"],
        terms=_terms(row["terms"]),
        owed={entry.cause: entry for entry in owed},
        parent_traceparent=row["parent_traceparent"],
    )


async def judge(
    rows: Sequence[Any], rule: Rule, troubles: dict[UUID, str], now: datetime
) -> list[tuple[Manifest, manifest_state.Verdict]]:
    """Judge each manifest by a rule, and collect the troubles of unjudged ones."""
    judged = []
    for number, row in enumerate(rows, start=1):
        manifest = read_manifest(row, now=now)
        if isinstance(manifest, UnreadableManifest):
            troubles[manifest.id] = manifest.trouble
            continue
        try:
            judged.append((manifest, rule(manifest.view, now=now)))
        except Exception as error:  # noqa: BLE001 - a zone unknown here, or any fault of the rules
            troubles[manifest.view.id] = f"{type(error).__name__}: {error}"
        if number % _JUDGED_AT_ONCE == 0:
            # Let the task that talks to the database run.
            await asyncio.sleep(0)
    return judged


async def decide(
    rows: Sequence[Any], rule: Rule, troubles: dict[UUID, str], now: datetime
) -> tuple[list[Decided], list[OutboxMessage]]:
    """Judge manifests, and build their ledger rows and messages."""
    judged = await judge(rows, rule, troubles, now)
    await asyncio.sleep(0)
    decided = [
        Decided(manifest=manifest, verdict=verdict, rows=list(rows_of(manifest, verdict)))
        for manifest, verdict in judged
    ]
    # A release may find that its decision is no longer owed, so it is announced when recorded: a
    # message starts a trace, which must not start twice.
    releases = any(row.release for decision in decided for row in decision.rows)
    return decided, [] if releases else announce(decided, now=now)


def rows_of(manifest: Manifest, verdict: manifest_state.Verdict) -> Iterator[LedgerRow]:
    """Build the ledger rows of a verdict."""
    for entry in verdict.entries:
        row = LedgerRow(manifest=verdict.manifest, **structs.asdict(entry))
        yield _queue(manifest, row) if entry.decision == "queued" else row
    for release in verdict.releases:
        owed = manifest.owed[release.cause]
        yield _queue(manifest, structs.replace(owed, slot=release.slot))


def _queue(manifest: Manifest, row: LedgerRow) -> LedgerRow:
    """Queue the work of a decision, or skip it if its input or its key is invalid."""
    work_input = row.input if row.has_input else manifest.input
    problem = problem_of_input(manifest.input_schema, manifest.takes_input, work_input)
    if problem is not None:
        return structs.replace(row, decision="skipped", reason=f"invalid_input: {problem}")
    try:
        key = key_of(manifest, work_input)
    except InvalidKey as error:
        return structs.replace(row, decision="skipped", reason=f"invalid_key: {error}")
    return structs.replace(
        row,
        decision="queued",
        reason=None,
        input=work_input,
        concurrency_key=key,
        work=identity.work_id(row.manifest, row.cause, row.made_at),
    )


def key_of(manifest: Manifest, work_input: Any) -> str | None:
    """Render the concurrency key of work of a manifest; raises `InvalidKey`."""
    return concurrency_key(
        manifest.terms.concurrency_key,
        input=work_input,
        manifest=manifest.external_id,
        group=manifest.group,
        job=manifest.job,
    )


def concurrency_key(template: str | None, **fields: Any) -> str | None:
    """Render a concurrency key; `None` without a template. Raises `InvalidKey`."""
    return None if template is None else render_key(template, **fields)


def announce(decided: Sequence[Decided], *, now: datetime) -> list[OutboxMessage]:
    """Build the messages of queued decisions."""
    queued = [
        queued_work(decision.manifest, row, now=now)
        for decision in decided
        for row in decision.rows
        if row.decision == "queued"
    ]
    return announce_work(queued, now=now)


def announce_work(
    queued: Iterable[tuple[WorkQueued, str | None]], *, now: datetime
) -> list[OutboxMessage]:
    """Announce new work, each with the trace of its cause, bundled by group."""
    ordered = sorted(queued, key=lambda pair: pair[0].group)
    traced = is_recording()
    return [
        message
        for group, members in groupby(ordered, key=lambda pair: pair[0].group)
        for message in bundled(
            subjects.work(group),
            [_work_event(work, now, cause, traced=traced) for work, cause in members],
        )
    ]


def _work_event(work: WorkQueued, now: datetime, cause: str | None, *, traced: bool) -> Event:
    """Build the event of new work; it starts a trace that is linked to its cause."""
    context = None
    if traced:
        source = {"job": work.job} if work.manifest is None else {"manifest": work.manifest}
        with new_trace("decide", cause=cause, **source, work=str(work.work)):
            context = traceparent()
    return event(
        work,
        id=f"{work.work}.{work.round}",
        source=SOURCE,
        subject=work.work,
        time=now,
        traceparent=context,
    )


def queued_work(
    manifest: Manifest, row: LedgerRow, *, now: datetime
) -> tuple[WorkQueued, str | None]:
    """Return the work of a queued decision, and the trace of its cause."""
    assert row.work is not None  # noqa: S101 - only queued decisions are announced
    terms, kind = manifest.terms, identity.kind_of(row.cause)
    within = row.start_within_seconds or terms.start_within_seconds
    start_from = row.due_at or row.not_before or now
    priority = terms.priority if row.priority is None else row.priority
    boost = _DEPENDENT_BOOST if kind in _BY_PARENTS else 0
    work = WorkQueued(
        work=row.work,
        manifest_id=row.manifest,
        manifest=manifest.external_id,
        group=manifest.group,
        job=manifest.job,
        input=row.input,
        input_schema=manifest.input_schema_id,
        cause=row.cause,
        due_at=identity.occurrence_of(row.cause),
        queued_at=now,
        slot=row.slot,
        not_before=row.not_before,
        terms=terms,
        priority=min(priority + boost, _HIGHEST_PRIORITY),
        start_by=None if within is None else start_from + timedelta(seconds=within),
        concurrency_key=row.concurrency_key,
        explicit=row.explicit,
    )
    return work, manifest.parent_traceparent if kind == "success" else row.traceparent


def facts_of(manifest: Manifest, row: LedgerRow, now: datetime) -> Iterator[Sample | Notification]:
    """Yield the facts for metrics and notifications; an owed decision counts when it is queued."""
    if row.decision == "skipped":
        yield from skip_facts(row, manifest.external_id, manifest.group)
    elif row.decision == "queued":
        yield Sample(FIRES, (manifest.group, identity.kind_of(row.cause)))
        if row.due_at is not None:
            view = manifest.view
            due_at = fire_at(view.timing, view.external_id, row.due_at, view.jitter_seconds)
            yield Sample(FIRE_LATENESS, (manifest.group,), (now - due_at).total_seconds())


def skip_facts(row: LedgerRow, manifest: str, group: str) -> Iterator[Sample | Notification]:
    """Yield the facts of a skipped decision."""
    yield Sample(SKIPS, (row.reason or "",))
    if row.reason == manifest_state.MISSED:
        missed = FiresMissed(
            manifest=manifest,
            group=group,
            first_due_at=row.first_due_at,
            last_due_at=row.last_due_at,
        )
        fact = f"missed {row.manifest} {row.cause}"
        yield Notification(identity=fact, subject=manifest, data=missed)
