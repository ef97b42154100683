"""The situation at the gate: load, limits and fleet; and the pass that records closed lanes."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
from headway_clock import monotonic
from headway_decisions.capacity.capacity import Load, Room
from headway_decisions.capacity.limits import GroupLimit, JobLimit, Limits
from headway_decisions.capacity.slots import Worker
from headway_postgres_kit import Connection, Database
from msgspec import Struct

from headway_dispatcher import store
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.store import Times, gates

_LANES_LOCK = 0x48570012
# Under load the gate runs all the time; people do not read faster.
_SECONDS_BETWEEN_WAITS = 1.0


class QueueState(Struct, frozen=True, kw_only=True):
    """The state of the queue without counts.

    `not_before` and `start_by` are the earliest of waiting work.
    """

    times: Times
    keys_changed: bool
    not_before: datetime | None
    start_by: datetime | None
    ready: bool

    @property
    def next_at(self) -> datetime | None:
        """When work becomes ready or expires by itself."""
        return min((at for at in (self.not_before, self.start_by) if at is not None), default=None)

    @property
    def idle(self) -> bool:
        """Whether the gate has nothing to do now."""
        next_at = self.next_at
        is_time = next_at is not None and next_at <= self.times.schedule
        return not (self.ready or self.keys_changed or is_time)


class Situation(Struct, frozen=True, kw_only=True):
    """Load, limits and fleet, before the gate reads any work."""

    queue: QueueState
    load: Load
    limits: Limits
    fleet: list[Worker]

    @property
    def now(self) -> datetime:
        """The schedule time."""
        return self.queue.times.schedule

    def room(self) -> Room:
        """Return the room for further runs."""
        return Room(self.limits, self.load, self.fleet, now=self.now)


async def read_queue_state(connection: Connection, database: Database) -> QueueState:
    """Read the state of the queue, without the gate's lock."""
    [row] = await connection.fetch(gates["look"])
    return await _queue_state(connection, database, row)


async def read_situation(
    connection: Connection, database: Database, settings: DispatcherSettings
) -> Situation:
    """Count active leases and read limits and fleet, in one statement."""
    silence = timedelta(seconds=settings.orphan_timeout_seconds)
    [row] = await connection.fetch(gates["situation"], silence)
    return Situation(
        queue=await _queue_state(connection, database, row),
        load=Load(
            groups=row["active_groups"] or {},
            jobs=row["active_jobs"] or {},
            leases_on_fleet=row["leases_on_fleet"] or {},
        ),
        limits=Limits(
            max_active=settings.max_active,
            groups=msgspec.convert(row["groups"] or {}, dict[str, GroupLimit]),
            jobs=msgspec.convert(row["jobs"] or {}, dict[str, JobLimit]),
        ),
        fleet=msgspec.convert(row["fleet"] or [], list[Worker]),
    )


async def _queue_state(connection: Connection, database: Database, row: Any) -> QueueState:
    return QueueState(
        times=await store.read_times(connection, database, real=row["now"]),
        keys_changed=row["keys_changed"],
        not_before=row["not_before"],
        start_by=row["start_by"],
        ready=row.get("ready", True),
    )


async def read_lanes(connection: Connection) -> list[tuple[str, str]]:
    """Read the lanes (group and job) with ready work."""
    rows = await connection.fetch(gates["lanes"])
    return [(row["group_name"], row["job"]) for row in rows]


class Waits:
    """Records why ready work waits, lane by lane, for one dispatcher process.

    It runs after the gate and without its lock: people read the reasons, no decision does. The
    row of other waiting work has its own reason; the view `dispatcher.waiting` shows both.
    """

    def __init__(self, database: Database, settings: DispatcherSettings) -> None:
        self._database = database
        self._settings = settings
        self._may_run_at = 0.0

    async def run_once(self) -> float | None:
        """Record the closed lanes, at most once a second."""
        early = self._may_run_at - monotonic()
        if early > 0:
            return early
        self._may_run_at = monotonic() + _SECONDS_BETWEEN_WAITS
        async with self._database.transaction() as connection:
            if not await connection.fetchval(gates["lock_lanes"], _LANES_LOCK):
                return None
            lanes = await read_lanes(connection)
            situation = await read_situation(connection, self._database, self._settings)
            room = situation.room()
            reasons = {lane: room.waits_for(*lane) for lane in lanes}
            closed = [(*lane, reason) for lane, reason in reasons.items() if reason is not None]
            await connection.execute(
                gates["close_lanes"],
                [group for group, _, _ in closed],
                [job for _, job, _ in closed],
                [reason for _, _, reason in closed],
                situation.now,
            )
        return None


def group_step(settings: DispatcherSettings) -> timedelta:
    """Return the age that one step of a group's priority is worth.

    It outweighs all steps of a manifest's priority. In the end age decides.
    """
    return timedelta(seconds=settings.rank_step_seconds) * 32
