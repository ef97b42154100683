"""Close the past of manifests before they change: skip times that came due meanwhile.

Outcomes, operators and declarations change a manifest in the same four steps: lock it, call
`skip_missed_during_pause`, make the change, call `reschedule_wake`. The tick then fires it.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from uuid import UUID

from headway_decisions.firing import due, manifest_state
from headway_decisions.firing.manifest_state import Entry, ManifestView, Verdict
from headway_postgres_kit import Connection
from headway_tracing.log import get_logger
from msgspec import structs

from headway_scheduler.fire.decide import judge, read_rows, rows_of
from headway_scheduler.fire.tick import move_on, write_ledger

log = get_logger(__name__)


async def skip_missed_during_pause(
    connection: Connection,
    ids: Iterable[UUID],
    *,
    now: datetime,
    until: datetime | Mapping[UUID, datetime] | None = None,
    otherwise: str | None = None,
) -> None:
    """Skip times that came due during a pause that ends at `until`, by default now.

    A manifest that is not paused only skips its excluded times. With `otherwise` it skips all of
    its due times for that reason, also times that only jitter delays.
    """

    def skip(view: ManifestView, *, now: datetime) -> tuple[ManifestView, list[Entry]]:
        end = until[view.id] if isinstance(until, Mapping) else until or now
        return _skip_missed(view, end, otherwise)

    await _close_past(connection, ids, skip, now)


async def leave_parents(connection: Connection, ids: Iterable[UUID], *, now: datetime) -> None:
    """Decide the open successes of parents for dependents that are about to lose them."""
    await _close_past(connection, ids, due.leave_parent, now)


async def _close_past(
    connection: Connection,
    ids: Iterable[UUID],
    rule: Callable[..., tuple[ManifestView, list[Entry]]],
    now: datetime,
) -> None:
    """Write the entries by which a rule closes the past of manifests."""

    def close(view: ManifestView, *, now: datetime) -> Verdict:
        closed, entries = rule(view, now=now)
        return Verdict(
            manifest=view.id,
            entries=tuple(entries),
            next_due_at=closed.next_due_at,
            seen_success=closed.seen_success,
        )

    ids = list(ids)
    if not ids:
        return
    troubles: dict[UUID, str] = {}
    judged = await judge(await read_rows(connection, ids), close, troubles, now)
    for manifest, trouble in troubles.items():
        # Nothing is lost: the times stay undecided until they can be judged.
        log.error("missed times cannot be judged", manifest=manifest, trouble=trouble)
    rows = [row for manifest, verdict in judged for row in rows_of(manifest, verdict)]
    await write_ledger(connection, rows, now=now)
    await move_on(connection, [verdict for _, verdict in judged if verdict.entries])


def _skip_missed(
    view: ManifestView, until: datetime, otherwise: str | None
) -> tuple[ManifestView, list[Entry]]:
    reason = due.pause(view) or otherwise
    if reason is None:
        return due.skip_excluded(view, until=until)
    if reason == manifest_state.PAUSED and otherwise is None:
        # Times that come due in a pause window are decided when the window ends.
        return view, []
    if otherwise is not None:
        view = structs.replace(view, jitter_seconds=0.0)
    return due.skip_missed_during_pause(view, reason, until=until)
