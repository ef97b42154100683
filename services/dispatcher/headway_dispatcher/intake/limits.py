"""Limits of groups and jobs, and whether manifests are enabled, as the scheduler sends them.

Messages may arrive in any order, so each has a version and applies only if it is newer than the
known one. A group without a row has no limits; a deleted group loses its row.

Limits change only between two passes of the gate, so that admitted work is within the limits in
force when the gate commits.
"""

from collections.abc import Hashable, Sequence
from typing import Any, TypeVar

from headway_contract.work import GroupChanged, JobChanged, ManifestChanged
from headway_postgres_kit import Connection, json_array

from headway_dispatcher.gate.store import GATE_LOCK
from headway_dispatcher.store import gates, works

Change = TypeVar("Change", GroupChanged, JobChanged, ManifestChanged)


async def apply(connection: Connection, data: Sequence[Any]) -> None:
    """Store the newest version of each limit."""
    changed = _newest(data, GroupChanged, lambda change: change.group)
    groups = [change for change in changed if not change.deleted]
    deleted = [change for change in changed if change.deleted]
    jobs = _newest(data, JobChanged, lambda change: change.job)
    if changed or jobs:
        await connection.execute(gates["lock_gate"], GATE_LOCK)
    await _apply_groups(connection, groups)
    await _delete_groups(connection, deleted)
    await _apply_jobs(connection, jobs)
    await _apply_switches(
        connection, _newest(data, ManifestChanged, lambda change: change.manifest_id)
    )


def _newest(data: Sequence[Any], kind: type[Change], name: Any) -> list[Change]:
    newest: dict[Hashable, Change] = {}
    for change in data:
        if isinstance(change, kind):
            known = newest.get(name(change))
            if known is None or change.version > known.version:
                newest[name(change)] = change
    return list(newest.values())


async def _apply_groups(connection: Connection, changes: Sequence[GroupChanged]) -> None:
    if changes:
        await connection.execute(
            works["apply_group"],
            [change.group for change in changes],
            [change.max_active for change in changes],
            [change.priority for change in changes],
            [change.enabled for change in changes],
            [change.version for change in changes],
            json_array(change.rate for change in changes),
        )


async def _delete_groups(connection: Connection, deleted: Sequence[GroupChanged]) -> None:
    if deleted:
        await connection.execute(
            works["delete_groups"],
            [change.group for change in deleted],
            [change.version for change in deleted],
        )


async def _apply_jobs(connection: Connection, changes: Sequence[JobChanged]) -> None:
    if changes:
        await connection.execute(
            works["apply_job"],
            [change.job for change in changes],
            [change.max_active for change in changes],
            json_array(change.rate for change in changes),
            [change.counts_globally for change in changes],
            [change.batch for change in changes],
            [change.version for change in changes],
            [change.retired for change in changes],
        )


async def _apply_switches(connection: Connection, changes: Sequence[ManifestChanged]) -> None:
    """Hold waiting work of disabled manifests, and release that of enabled ones."""
    if not changes:
        return
    rows = await connection.fetch(
        works["apply_switch"],
        [change.manifest_id for change in changes],
        [change.enabled for change in changes],
        [change.version for change in changes],
    )
    disabled = [row["manifest_id"] for row in rows if not row["enabled"]]
    if disabled:
        await connection.execute(works["hold_disabled"], disabled)
    enabled = [row["manifest_id"] for row in rows if row["enabled"]]
    if enabled:
        await connection.execute(works["release_held"], enabled)
