"""Rows of the ledger: what decisions become when they are written down."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from headway.define.inputs import problem_of_input
from headway_decisions.capacity.keys import InvalidKey, render_key
from headway_decisions.firing import identity
from headway_decisions.firing.manifest_state import Entry, Verdict
from msgspec import Struct, structs

from headway_scheduler.fire.manifest import Manifest, OwedEntry


class LedgerRow(Struct, frozen=True, kw_only=True):
    """One decision, with all that its work needs if it makes any.

    `release` marks a decision that was owed and is in the ledger already.
    """

    manifest: UUID
    cause: str
    first_due_at: datetime
    last_due_at: datetime
    decision: Literal["queued", "owed", "skipped"]
    reason: str | None = None
    work: UUID | None = None
    slot: int = 0
    actor: str | None = None
    explicit: bool = False
    has_input: bool = False
    input: Any = None
    not_before: datetime | None = None
    priority: int | None = None
    start_within_seconds: float | None = None
    release: bool = False
    # What its work shares with other work, once that is queued.
    concurrency_key: str | None = None
    # The trace in which it was asked for.
    traceparent: str | None = None
    # When it was decided, where that is in the ledger already.
    decided_at: datetime | None = None

    @property
    def key(self) -> tuple[UUID, str]:
        """What makes a decision unique."""
        return self.manifest, self.cause

    @property
    def due_at(self) -> datetime | None:
        """The time for which a schedule fired, if one did."""
        return self.first_due_at if self.cause.startswith("due:") else None

    @property
    def made_at(self) -> datetime:
        """When what no schedule fires was asked for: a backfill is due long before."""
        backfilled = identity.kind_of(self.cause) == "backfill"
        return self.decided_at if backfilled and self.decided_at else self.first_due_at

    @classmethod
    def skipped(cls, manifest: UUID, entry: Entry) -> "LedgerRow":
        """A decision that makes no work."""
        return cls(
            manifest=manifest,
            cause=entry.cause,
            first_due_at=entry.first_due_at,
            last_due_at=entry.last_due_at,
            decision="skipped",
            reason=entry.reason,
        )


def rows_of(manifest: Manifest, verdict: Verdict) -> Iterator[LedgerRow]:
    """What a verdict writes into the ledger."""
    for entry in verdict.entries:
        row = LedgerRow.skipped(verdict.manifest, entry)
        if entry.decision == "owed":
            row = structs.replace(row, decision="owed")
        elif entry.decision == "queued":
            row = queue(manifest, structs.replace(row, slot=entry.slot, input=manifest.input))
        yield row
    for release in verdict.releases:
        owed = manifest.owed[release.cause]
        yield queue(manifest, structs.replace(_owed(manifest, owed), slot=release.slot))


def queue(manifest: Manifest, row: LedgerRow) -> LedgerRow:
    """Give a decision its work, unless the job would not take the input or it makes no key."""
    given = row.input if row.has_input else manifest.input
    problem = problem_of_input(manifest.input_schema, manifest.takes_input, given)
    if problem is not None:
        return structs.replace(row, decision="skipped", reason=f"invalid_input: {problem}")
    try:
        key = key_of(manifest, given)
    except InvalidKey as error:
        return structs.replace(row, decision="skipped", reason=f"invalid_key: {error}")
    return structs.replace(
        row,
        decision="queued",
        reason=None,
        input=given,
        concurrency_key=key,
        work=identity.work_id(row.manifest, row.cause, row.made_at),
    )


def key_of(manifest: Manifest, given: Any) -> str | None:
    """The concurrency key of a manifest's work with an input, or `InvalidKey`."""
    if manifest.terms.concurrency_key is None:
        return None
    return render_key(
        manifest.terms.concurrency_key,
        input=given,
        manifest=manifest.external_id,
        group=manifest.group,
        job=manifest.job,
    )


def _owed(manifest: Manifest, owed: OwedEntry) -> LedgerRow:
    return LedgerRow(
        manifest=manifest.view.id,
        cause=owed.cause,
        first_due_at=owed.due_at,
        last_due_at=owed.due_at,
        decision="owed",
        explicit=owed.explicit,
        has_input=owed.has_input,
        input=owed.input,
        not_before=owed.not_before,
        priority=owed.priority,
        start_within_seconds=owed.start_within_seconds,
        release=True,
        traceparent=owed.traceparent,
        decided_at=owed.decided_at,
    )
