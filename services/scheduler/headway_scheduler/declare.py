"""Declaring what an application defines: an upsert by external id, in one transaction.

An unchanged definition writes nothing and keeps its next due time. A changed one gets a
next due time counted from now. What its owner no longer declares keeps its record and
stops firing.
"""

import logging
from datetime import datetime
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
from headway.definitions import Definitions, GroupDefinition, InvalidDefinitions, ManifestDefinition
from headway_clock import new_id
from headway_contract import encode, event, subjects
from headway_contract.work import GroupChanged
from headway_decisions import wall_clock
from headway_history import Record
from headway_postgres_kit import Connection, Database, json_array
from headway_relay import OutboxMessage
from msgspec import Struct

from headway_scheduler.store import DECLARE_LOCK, HISTORY, OUTBOX, manifests

logger = logging.getLogger(__name__)


class Declared(Struct, frozen=True, kw_only=True):
    """What a declaration changed."""

    created: int = 0
    changed: int = 0
    unchanged: int = 0
    undeclared: int = 0


class _Known(Struct, frozen=True):
    id: UUID
    owner: str
    definition_hash: str
    undeclared: bool


async def declare(database: Database, definitions: Definitions) -> Declared:
    """Store definitions; all of them or none."""
    async with database.transaction() as connection:
        await connection.execute(manifests["lock_declaring"], DECLARE_LOCK)
        now: datetime = await connection.fetchval(manifests["now"])
        known = await _known(connection, definitions)
        _refuse_foreign(definitions, known)
        stale, gone = _compare(definitions, known)
        await _write_jobs(connection, definitions, now)
        await _write_groups(connection, definitions.groups, now)
        await _write_manifests(connection, definitions.owner, stale, known, now)
        await connection.execute(manifests["undeclare"], [known[one].id for one in gone], now)
        await _write_history(connection, definitions.owner, stale, gone, known, now)
    created = sum(one.external_id not in known for one in stale)
    declared = Declared(
        created=created,
        changed=len(stale) - created,
        unchanged=len(definitions.manifests) - len(stale),
        undeclared=len(gone),
    )
    logger.info(
        "%s declares %d manifest(s): %d new, %d changed, %d no longer declared",
        definitions.owner,
        len(definitions.manifests),
        declared.created,
        declared.changed,
        declared.undeclared,
    )
    return declared


async def _known(connection: Connection, definitions: Definitions) -> dict[str, _Known]:
    rows = await connection.fetch(
        manifests["declared_by"],
        definitions.owner,
        [one.external_id for one in definitions.manifests],
    )
    return {
        row["external_id"]: _Known(
            row["id"], row["owner"], row["definition_hash"], row["undeclared_at"] is not None
        )
        for row in rows
    }


def _refuse_foreign(definitions: Definitions, known: dict[str, _Known]) -> None:
    """Two applications share a database; neither takes a manifest from the other."""
    problems = [
        f"manifest {one.external_id!r} belongs to the application "
        f"{known[one.external_id].owner!r}: give it another id"
        for one in definitions.manifests
        if one.external_id in known and known[one.external_id].owner != definitions.owner
    ]
    if problems:
        raise InvalidDefinitions(problems)


def _compare(
    definitions: Definitions, known: dict[str, _Known]
) -> tuple[list[ManifestDefinition], list[str]]:
    """Which definitions are new or changed, and which manifests are no longer declared."""
    stale = []
    for one in definitions.manifests:
        stored = known.get(one.external_id)
        if stored is None or stored.undeclared or stored.definition_hash != one.fingerprint():
            stale.append(one)
    # Rows are locked in the order of their ids everywhere, or two of us could wait for ever.
    stale.sort(key=lambda one: known[one.external_id].id.int if one.external_id in known else 0)
    named = {one.external_id for one in definitions.manifests}
    gone = [
        external_id
        for external_id, stored in known.items()
        if external_id not in named and not stored.undeclared
    ]
    return stale, gone


async def _write_jobs(connection: Connection, definitions: Definitions, now: datetime) -> None:
    await connection.execute(
        manifests["upsert_job"],
        [job.name for job in definitions.jobs],
        definitions.owner,
        [job.description for job in definitions.jobs],
        json_array(job.input_schema for job in definitions.jobs),
        now,
    )


async def _write_groups(
    connection: Connection, groups: tuple[GroupDefinition, ...], now: datetime
) -> None:
    names = [group.name for group in groups]
    await connection.execute(
        manifests["upsert_group"],
        names,
        [group.max_active for group in groups],
        [group.priority for group in groups],
        now,
        [group.name for group in groups if group.priority is not None],
    )
    rows = await connection.fetch(manifests["groups"], names)
    changes = [
        GroupChanged(
            group=row["name"],
            version=row["version"],
            max_active=row["max_active"],
            priority=row["priority"],
            enabled=row["enabled"],
        )
        for row in rows
    ]
    await OUTBOX.add(connection, [_announce(change, now) for change in changes])


async def _write_manifests(
    connection: Connection,
    owner: str,
    stale: list[ManifestDefinition],
    known: dict[str, _Known],
    now: datetime,
) -> None:
    await connection.execute(
        manifests["upsert_manifest"],
        [known[one.external_id].id if one.external_id in known else new_id() for one in stale],
        [one.external_id for one in stale],
        owner,
        [one.job for one in stale],
        [one.group for one in stale],
        json_array(one.input for one in stale),
        json_array(one.cadence for one in stale),
        [one.tz for one in stale],
        [one.priority for one in stale],
        json_array(one.retry for one in stale),
        [one.timeout_seconds for one in stale],
        [one.on_lost_contact for one in stale],
        [one.fingerprint() for one in stale],
        [wall_clock.next_after(one.cadence, ZoneInfo(one.tz), now) for one in stale],
        now,
        [one.cancel_grace_seconds for one in stale],
    )


async def _write_history(
    connection: Connection,
    owner: str,
    stale: list[ManifestDefinition],
    gone: list[str],
    known: dict[str, _Known],
    now: datetime,
) -> None:
    entries = [
        ("headway.manifest.declared.v1", one.external_id, msgspec.to_builtins(one)) for one in stale
    ] + [
        ("headway.manifest.undeclared.v1", external_id, {"id": str(known[external_id].id)})
        for external_id in gone
    ]
    records = [
        Record(
            event_id=str(new_id()),
            type=kind,
            subject=external_id,
            source=f"app/{owner}",
            occurred_at=now,
            data=data,
        )
        for kind, external_id, data in entries
    ]
    await HISTORY.append(connection, records, now=now)


def _announce(change: GroupChanged, now: datetime) -> OutboxMessage:
    message_id = f"group.{change.group}.{change.version}"
    return OutboxMessage(
        message_id=message_id,
        subject=subjects.work(change.group),
        body=encode(
            event(change, id=message_id, source="headway/scheduler", subject=change.group, time=now)
        ),
    )
