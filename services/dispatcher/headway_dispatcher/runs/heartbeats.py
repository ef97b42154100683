"""Heartbeats: who lives, what they hold, and what to tell them.

Heartbeats are collected for a moment and written together. A dispatcher without its
database still answers, with nothing to say: workers must not take its trouble for theirs.
"""

import asyncio
import logging
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from headway_contract import check_name, subjects
from headway_contract.control import (
    PROTOCOL,
    CancelRun,
    Heartbeat,
    HeartbeatReply,
    LeaseWarning,
    ReleaseLease,
)
from headway_contract.nulls import decode_lenient
from headway_errors import RequestFailed
from headway_jetstream_kit import Broker, BrokerUnavailable
from headway_jetstream_kit.ask import ask
from headway_jetstream_kit.limited_log import LimitedLog
from headway_postgres_kit import Connection, Database, DatabaseUnavailable, json_array
from headway_service_kit.after_commit import IGNORED_MESSAGES
from headway_service_kit.passes import Wakeup
from headway_tracing.log import get_logger
from msgspec import Struct
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from headway_dispatcher import store
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.store import workers

logger = logging.getLogger(__name__)


# A worker waits for its answer; a database that takes longer is not waited for.
_PATIENCE = 1.0

Process = tuple[str, str]


class _Beat(Struct, frozen=True):
    message: Msg
    heartbeat: Heartbeat


class Heard(Struct, frozen=True, kw_only=True):
    """What heartbeats changed: if the gate should look; what each process lost or must stop."""

    news: bool = False
    releases: dict[Process, list[ReleaseLease]] = {}
    cancels: dict[Process, list[CancelRun]] = {}
    renewals: dict[Process, list[UUID]] = {}
    warnings: dict[Process, list[LeaseWarning]] = {}
    drains: frozenset[Process] = frozenset()


class Heartbeats:
    """Listens to the heartbeats that reach this dispatcher."""

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
        """Share the heartbeats with all other dispatchers."""
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
        """Write down and answer all heartbeats that have arrived."""
        beats, self._waiting = self._waiting, []
        if not beats:
            return None
        heard = Heard()
        try:
            heard = await self._record_in_time([beat.heartbeat for beat in beats])
        finally:
            await self._answer(beats, heard)
        if heard.news:
            self._gate.call()
        return None

    async def _record_in_time(self, heartbeats: list[Heartbeat]) -> Heard:
        """Record, but let no worker wait for a database that hangs.

        While an earlier recording hangs, nothing is recorded: workers beat again soon.
        """
        if self._recording is not None and not self._recording.done():
            return Heard()
        self._recording = asyncio.create_task(self._record_each(heartbeats))
        self._recording.add_done_callback(_take_note)
        done, _ = await asyncio.wait({self._recording}, timeout=_PATIENCE)
        return self._recording.result() if done else Heard()

    async def _record_each(self, heartbeats: list[Heartbeat]) -> Heard:
        """All together; one by one if something is wrong with any of them."""
        try:
            return await self._record(heartbeats)
        except DatabaseUnavailable:
            raise
        except Exception as error:
            if len(heartbeats) == 1:
                logger.exception("heartbeat of %s", heartbeats[0].worker)
                return Heard()
            logger.warning("a batch of heartbeats failed: %s", error)
        heard = [await self._record_each([one]) for one in heartbeats]
        return Heard(
            news=any(one.news for one in heard),
            releases={key: value for one in heard for key, value in one.releases.items()},
            cancels={key: value for one in heard for key, value in one.cancels.items()},
            renewals={key: value for one in heard for key, value in one.renewals.items()},
            warnings={key: value for one in heard for key, value in one.warnings.items()},
            drains=frozenset(key for one in heard for key in one.drains),
        )

    async def _record(self, heartbeats: list[Heartbeat]) -> Heard:
        """Note who was heard; tells if the gate should look, and which leases were lost."""
        async with self._database.transaction() as connection:
            now = await store.read_now(connection)
            await self._hear_witnesses(connection, heartbeats, now)
            beats = [one for one in heartbeats if one.worker != subjects.DISPATCHER]
            by_name = {one.worker: one for one in beats}
            alive = [one for one in by_name.values() if not one.stopped]
            workers_heard = await _hear_workers(connection, alive, now)
            await _forget(connection, [one for one in beats if one.stopped])
            releases, renewals = await _hear_leases(connection, beats, now)
            cancels = await _cancels(connection, beats)
            warnings = await _warnings(connection, beats, now)
        return Heard(
            # Somebody new may do what nobody could.
            news=any(row["first_heard_at"] == now for row in workers_heard),
            releases=releases,
            cancels=cancels,
            renewals=renewals,
            warnings=warnings,
            drains=frozenset(
                (row["name"], row["nonce"]) for row in workers_heard if row["drain_asked"]
            ),
        )

    async def _hear_witnesses(
        self, connection: Connection, heartbeats: list[Heartbeat], now: datetime
    ) -> None:
        names = [one.nonce for one in heartbeats if one.worker == subjects.DISPATCHER]
        if names:
            gap = timedelta(seconds=3 * self._settings.heartbeat_seconds)
            await connection.execute(workers["hear_witnesses"], names, now, gap)

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
            logger.warning("answering a heartbeat: %s", error)


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


def _take_note(recording: "asyncio.Task[Heard]") -> None:
    """A recording that nobody waited for may fail, too; the loop would complain at its end."""
    if not recording.cancelled() and recording.exception() is not None:
        logger.debug("heartbeats were not recorded: %s", recording.exception())


async def _hear_workers(connection: Connection, alive: list[Heartbeat], now: datetime) -> list[Any]:
    """Write workers down; returns who is new, and who is to drain."""
    if not alive:
        return []
    rows: list[Any] = await connection.fetch(
        workers["hear_workers"],
        [one.worker for one in alive],
        [one.nonce for one in alive],
        [one.host for one in alive],
        [one.sdk for one in alive],
        [one.sdk_version for one in alive],
        [one.code_version for one in alive],
        json_array(one.jobs for one in alive),
        [one.slots for one in alive],
        [one.draining for one in alive],
        now,
        json_array(one.concurrency for one in alive),
    )
    return rows


async def _forget(connection: Connection, stopped: list[Heartbeat]) -> None:
    if stopped:
        await connection.execute(
            workers["forget_workers"],
            [one.worker for one in stopped],
            [one.nonce for one in stopped],
        )


async def _hear_leases(
    connection: Connection, heartbeats: list[Heartbeat], now: datetime
) -> tuple[dict[Process, list[ReleaseLease]], dict[Process, list[UUID]]]:
    """Note the leases that were named; returns those to release and those to renew."""
    named = [(lease, one.worker, one.nonce) for one in heartbeats for lease in one.leases]
    if not named:
        return {}, {}
    rows = await connection.fetch(
        workers["hear_leases"],
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
    """Read what is wrong with the messages that each process has published."""
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
    """The runs that each process has to stop, however often it was told before."""
    if not heartbeats:
        return {}
    processes = {(one.worker, one.nonce) for one in heartbeats}
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


class Witness:
    """The dispatcher's own heartbeat, sent like a worker's and read back from PostgreSQL."""

    def __init__(self, broker: Broker, settings: DispatcherSettings, *, name: str) -> None:
        self._broker = broker
        self._settings = settings
        self._name = name

    async def run_once(self) -> float | None:
        """Beat once."""
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
