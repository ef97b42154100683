"""Heartbeats: record live workers and their leases, and reply with instructions.

Heartbeats are collected and written together. A dispatcher without its database still replies, so
that workers do not treat the dispatcher's outage as their own.
"""

import asyncio
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from headway_contract import InvalidName, check_name, subjects
from headway_contract.envelope import decode_lenient
from headway_contract.worker_protocol import (
    PROTOCOL,
    CancelPush,
    CancelRun,
    Heartbeat,
    HeartbeatReply,
    LeaseWarning,
    ReleaseLease,
)
from headway_errors import RequestFailed
from headway_jetstream_kit import Broker, BrokerUnavailable
from headway_jetstream_kit.ask import ask
from headway_jetstream_kit.limited_log import LimitedLog
from headway_postgres_kit import Connection, Database, DatabaseUnavailable, json_array
from headway_service_kit.ignored_messages import IGNORED_MESSAGES
from headway_service_kit.passes import Wakeup
from headway_tracing.log import get_logger
from msgspec import Struct
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from headway_dispatcher import store
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.store import workers

log = get_logger(__name__)

# A worker waits for its reply, so a slower database is not waited for.
_RECORD_TIMEOUT = 1.0

Process = tuple[str, str]


class _Beat(Struct, frozen=True):
    message: Msg
    heartbeat: Heartbeat


class Heard(Struct, frozen=True, kw_only=True):
    """Instructions for each process; `new_worker` wakes the gate."""

    new_worker: bool = False
    releases: dict[Process, list[ReleaseLease]] = {}
    cancels: dict[Process, list[CancelRun]] = {}
    renewals: dict[Process, list[UUID]] = {}
    warnings: dict[Process, list[LeaseWarning]] = {}
    drains: frozenset[Process] = frozenset()


class Heartbeats:
    """Receives heartbeats, for one dispatcher process."""

    def __init__(
        self,
        database: Database,
        broker: Broker,
        settings: DispatcherSettings,
        *,
        name: str,
        gate: Wakeup,
    ) -> None:
        self._database = database
        self._broker = broker
        self._settings = settings
        self._name = name
        self._gate = gate
        self._waiting: list[_Beat] = []
        self._unreadable = LimitedLog(get_logger(__name__))
        self.arrived = Wakeup()
        self._recording: asyncio.Task[Heard] | None = None

    async def listen(self) -> None:
        """Share the heartbeats with the other dispatchers."""
        client = self._broker.client
        for subject in (subjects.HEARTBEAT, subjects.WITNESS):
            await client.subscribe(subject, queue=subjects.DISPATCHERS, cb=self._on_heartbeat)

    async def _on_heartbeat(self, message: Msg) -> None:
        try:
            heartbeat = _read(message)
        except (msgspec.DecodeError, ValueError) as error:
            self._unreadable.warning("heartbeats refused", error=error)
            IGNORED_MESSAGES.add("unreadable_heartbeats")
            await self._reply(message, HeartbeatReply(dispatcher=self._name, error=str(error)))
            return
        self._waiting.append(_Beat(message, heartbeat))
        self.arrived.call()

    async def run_once(self) -> float | None:
        """Record and answer all heartbeats that have arrived."""
        beats, self._waiting = self._waiting, []
        if not beats:
            return None
        heard = Heard()
        try:
            heard = await self._record_in_time([beat.heartbeat for beat in beats])
        finally:
            await self._answer(beats, heard)
        if heard.new_worker:
            self._gate.call()
        return None

    async def _record_in_time(self, heartbeats: list[Heartbeat]) -> Heard:
        """Record heartbeats, but stop waiting for a database that hangs.

        Nothing is recorded while an earlier recording hangs; the next heartbeats come soon.
        """
        if self._recording is not None and not self._recording.done():
            return Heard()
        self._recording = asyncio.create_task(self._record_each(heartbeats))
        self._recording.add_done_callback(_log_failure)
        done, _ = await asyncio.wait({self._recording}, timeout=_RECORD_TIMEOUT)
        return self._recording.result() if done else Heard()

    async def _record_each(self, heartbeats: list[Heartbeat]) -> Heard:
        """Record heartbeats together; one by one if that fails."""
        try:
            return await self._record(heartbeats)
        except DatabaseUnavailable:
            raise
        except Exception as error:
            if len(heartbeats) == 1:
                log.exception("heartbeat not recorded", worker=heartbeats[0].worker)
                return Heard()
            log.warning("heartbeat batch failed", error=error)
        heard = [await self._record_each([heartbeat]) for heartbeat in heartbeats]
        return Heard(
            new_worker=any(each.new_worker for each in heard),
            releases={key: value for each in heard for key, value in each.releases.items()},
            cancels={key: value for each in heard for key, value in each.cancels.items()},
            renewals={key: value for each in heard for key, value in each.renewals.items()},
            warnings={key: value for each in heard for key, value in each.warnings.items()},
            drains=frozenset(key for each in heard for key in each.drains),
        )

    async def _record(self, heartbeats: list[Heartbeat]) -> Heard:
        """Record heartbeats in one transaction."""
        async with self._database.transaction() as connection:
            now = await store.read_now(connection)
            await self._record_witnesses(connection, heartbeats, now)
            beats = [beat for beat in heartbeats if beat.worker != subjects.DISPATCHER]
            by_name = {beat.worker: beat for beat in beats}
            alive = [beat for beat in by_name.values() if not beat.stopped]
            rows = await _record_workers(connection, alive, now)
            await _delete_stopped(connection, [beat for beat in beats if beat.stopped])
            releases, renewals = await _record_leases(connection, beats, now)
            cancels = await _cancels(connection, beats)
            warnings = await _warnings(connection, beats, now)
        return Heard(
            new_worker=any(row["first_heard_at"] == now for row in rows),
            releases=releases,
            cancels=cancels,
            renewals=renewals,
            warnings=warnings,
            drains=frozenset((row["name"], row["nonce"]) for row in rows if row["drain_asked"]),
        )

    async def _record_witnesses(
        self, connection: Connection, heartbeats: list[Heartbeat], now: datetime
    ) -> None:
        names = [beat.nonce for beat in heartbeats if beat.worker == subjects.DISPATCHER]
        if names:
            gap = timedelta(seconds=3 * self._settings.heartbeat_seconds)
            await connection.execute(workers["record_witnesses"], names, now, gap)

    async def _answer(self, beats: list[_Beat], heard: Heard) -> None:
        for beat in beats:
            process = (beat.heartbeat.worker, beat.heartbeat.nonce)
            reply = HeartbeatReply(
                dispatcher=self._name,
                cancel=heard.cancels.get(process, []),
                release=heard.releases.get(process, []),
                renew=heard.renewals.get(process, []),
                warnings=heard.warnings.get(process, []),
                drain=process in heard.drains,
                heartbeat_seconds=self._settings.heartbeat_seconds,
            )
            await self._reply(beat.message, reply)

    async def _reply(self, message: Msg, reply: HeartbeatReply) -> None:
        try:
            await message.respond(msgspec.json.encode(reply))
        except NatsError as error:
            log.warning("heartbeat reply failed", error=error)


def _read(message: Msg) -> Heartbeat:
    """Read a heartbeat; raises if it breaks W1 or cannot be read."""
    heartbeat = decode_lenient(message.data, Heartbeat)
    if message.subject == subjects.WITNESS:
        return heartbeat
    check_name("worker", heartbeat.worker)
    if heartbeat.protocol != PROTOCOL:
        raise ValueError(
            f"protocol {heartbeat.protocol} is not known: this dispatcher speaks {PROTOCOL}"
        )
    return heartbeat


def _log_failure(recording: "asyncio.Task[Heard]") -> None:
    """Retrieve the exception of a recording that timed out, or the event loop reports it."""
    if not recording.cancelled() and recording.exception() is not None:
        log.debug("heartbeats not recorded", error=recording.exception())


async def _record_workers(
    connection: Connection, alive: list[Heartbeat], now: datetime
) -> list[Any]:
    """Upsert workers; returns their rows."""
    if not alive:
        return []
    rows: list[Any] = await connection.fetch(
        workers["record_workers"],
        [beat.worker for beat in alive],
        [beat.nonce for beat in alive],
        [beat.host for beat in alive],
        [beat.sdk for beat in alive],
        [beat.sdk_version for beat in alive],
        [beat.code_version for beat in alive],
        json_array(beat.jobs for beat in alive),
        [beat.slots for beat in alive],
        [beat.draining for beat in alive],
        now,
        json_array(beat.concurrency for beat in alive),
    )
    return rows


async def _delete_stopped(connection: Connection, stopped: list[Heartbeat]) -> None:
    if stopped:
        await connection.execute(
            workers["delete_stopped"],
            [beat.worker for beat in stopped],
            [beat.nonce for beat in stopped],
        )


async def _record_leases(
    connection: Connection, heartbeats: list[Heartbeat], now: datetime
) -> tuple[dict[Process, list[ReleaseLease]], dict[Process, list[UUID]]]:
    """Record named leases; returns those to release and those to renew."""
    named = [(lease, beat.worker, beat.nonce) for beat in heartbeats for lease in beat.leases]
    if not named:
        return {}, {}
    rows = await connection.fetch(
        workers["record_leases"],
        [lease for lease, _, _ in named],
        [worker for _, worker, _ in named],
        [nonce for _, _, nonce in named],
        now,
    )
    releases: dict[Process, list[ReleaseLease]] = {}
    renewals: dict[Process, list[UUID]] = {}
    for row in rows:
        key = (row["worker"], row["nonce"])
        if row["reason"] == "unclaimed":
            renewals.setdefault(key, []).append(row["id"])
        else:
            releases.setdefault(key, []).append(ReleaseLease(lease=row["id"], reason=row["reason"]))
    return releases, renewals


async def _warnings(
    connection: Connection, heartbeats: list[Heartbeat], now: datetime
) -> dict[Process, list[LeaseWarning]]:
    """Read problems with the messages that each process published."""
    processes = {(beat.worker, beat.nonce) for beat in heartbeats}
    if not processes:
        return {}
    rows = await connection.fetch(
        workers["warnings"],
        [worker for worker, _ in processes],
        [nonce for _, nonce in processes],
        now,
    )
    warnings: dict[Process, list[LeaseWarning]] = {}
    for row in rows:
        warning = LeaseWarning(lease=row["id"], message=row["warning"])
        warnings.setdefault((row["worker"], row["nonce"]), []).append(warning)
    return warnings


async def _cancels(
    connection: Connection, heartbeats: list[Heartbeat]
) -> dict[Process, list[CancelRun]]:
    """Read the runs that each process must stop; repeated until they have ended."""
    if not heartbeats:
        return {}
    processes = {(beat.worker, beat.nonce) for beat in heartbeats}
    rows = await connection.fetch(
        workers["cancels"],
        [worker for worker, _ in processes],
        [nonce for _, nonce in processes],
    )
    cancels: dict[Process, list[CancelRun]] = {}
    for row in rows:
        cancel = CancelRun(run=row["run_id"], lease=row["lease_id"], reason=row["reason"])
        cancels.setdefault((row["worker"], row["nonce"]), []).append(cancel)
    return cancels


async def push_to_worker(broker: Broker, worker: str, instructions: CancelPush) -> None:
    """Send instructions ahead of the next heartbeat reply, which repeats them; may be lost."""
    try:
        await broker.client.publish(subjects.cancel(worker), msgspec.json.encode(instructions))
    except (OSError, InvalidName, NatsError) as error:
        log.debug("push failed", worker=worker, error=error)


class Witness:
    """The dispatcher's own heartbeat, sent like a worker's and read back from PostgreSQL."""

    def __init__(self, broker: Broker, settings: DispatcherSettings, *, name: str) -> None:
        self._broker = broker
        self._settings = settings
        self._name = name

    async def run_once(self) -> float | None:
        """Send one heartbeat."""
        heartbeat = Heartbeat(worker=subjects.DISPATCHER, nonce=self._name)
        try:
            await ask(
                self._broker,
                subjects.WITNESS,
                heartbeat,
                HeartbeatReply,
                timeout=self._settings.heartbeat_seconds,
            )
        except RequestFailed as error:
            raise BrokerUnavailable(f"own heartbeat: {error}") from error
        return self._settings.heartbeat_seconds
