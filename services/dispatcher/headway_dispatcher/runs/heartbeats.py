"""Heartbeats: record live workers and their leases, and reply with instructions.

Heartbeats are collected and written together. A dispatcher without its database still replies, so
that workers do not treat the dispatcher's outage as their own.
"""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta

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
from headway_jetstream_kit import Broker, BrokerUnavailable, Msg, NatsError
from headway_jetstream_kit.ask import ask
from headway_jetstream_kit.limited_log import LimitedLog
from headway_postgres_kit import Connection, Database, DatabaseUnavailable
from headway_service_kit.ignored_messages import count_ignored
from headway_service_kit.passes import Wakeup
from headway_tracing.log import get_logger
from msgspec import structs

from headway_dispatcher import store
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.store import workers

log = get_logger(__name__)

# A transaction for many heartbeats costs about the same as for one, and no reply is urgent.
_LINGER_SECONDS = 0.02
# A worker waits for its reply, so a slower database is not waited for.
_RECORD_TIMEOUT = 1.0

# The name and the nonce of a worker process.
Process = tuple[str, str]
Replies = dict[Process, HeartbeatReply]


@dataclass
class Heartbeats:
    """Receives heartbeats, for one dispatcher process."""

    database: Database
    broker: Broker
    settings: DispatcherSettings
    name: str
    gate: Wakeup
    arrived: Wakeup = field(default_factory=Wakeup)
    _waiting: list[tuple[Msg, Heartbeat]] = field(default_factory=list)
    _unreadable: LimitedLog = field(default_factory=lambda: LimitedLog(log))
    _recording: "asyncio.Task[Replies] | None" = None

    async def listen(self) -> None:
        """Share the heartbeats with the other dispatchers."""
        client = self.broker.client
        for subject in (subjects.HEARTBEAT, subjects.WITNESS):
            await client.subscribe(subject, queue=subjects.DISPATCHERS, cb=self._on_heartbeat)

    async def _on_heartbeat(self, message: Msg) -> None:
        try:
            heartbeat = _read(message)
        except (msgspec.DecodeError, ValueError) as error:
            self._unreadable.warning("heartbeats refused", error=error)
            count_ignored("unreadable_heartbeats")
            await _respond(message, HeartbeatReply(dispatcher=self.name, error=str(error)))
            return
        self._waiting.append((message, heartbeat))
        self.arrived.call()

    async def run_once(self) -> float | None:
        """Record and answer all heartbeats that arrive within a short time."""
        if not self._waiting:
            return None
        await asyncio.sleep(_LINGER_SECONDS)
        beats, self._waiting = self._waiting, []
        replies: Replies = {}
        try:
            replies = await self._record_in_time([heartbeat for _, heartbeat in beats])
        finally:
            for message, heartbeat in beats:
                reply = replies.get(_process(heartbeat))
                await _respond(message, self._reply() if reply is None else reply)
        return None

    def _reply(self, *, drain: bool = False) -> HeartbeatReply:
        return HeartbeatReply(
            dispatcher=self.name, drain=drain, heartbeat_seconds=self.settings.heartbeat_seconds
        )

    async def _record_in_time(self, heartbeats: list[Heartbeat]) -> Replies:
        """Record heartbeats, but stop waiting for a database that hangs.

        Nothing is recorded while an earlier recording hangs; the next heartbeats come soon.
        """
        if self._recording is not None and not self._recording.done():
            return {}
        self._recording = asyncio.create_task(self._record_each(heartbeats))
        self._recording.add_done_callback(_log_failure)
        done, _ = await asyncio.wait({self._recording}, timeout=_RECORD_TIMEOUT)
        return self._recording.result() if done else {}

    async def _record_each(self, heartbeats: list[Heartbeat]) -> Replies:
        """Record heartbeats together; one by one if that fails."""
        try:
            return await self._record(heartbeats)
        except DatabaseUnavailable:
            raise
        except Exception as error:
            if len(heartbeats) == 1:
                log.exception("heartbeat not recorded", worker=heartbeats[0].worker)
                return {}
            log.warning("heartbeat batch failed", error=error)
        replies: Replies = {}
        for heartbeat in heartbeats:
            replies |= await self._record_each([heartbeat])
        return replies

    async def _record(self, heartbeats: list[Heartbeat]) -> Replies:
        """Record heartbeats in one transaction; returns the reply to each process."""
        witnesses = [beat.nonce for beat in heartbeats if beat.worker == subjects.DISPATCHER]
        beats = [beat for beat in heartbeats if beat.worker != subjects.DISPATCHER]
        latest = {beat.worker: beat for beat in beats}
        alive = [
            structs.replace(beat, leases=[], runs=[])
            for beat in latest.values()
            if not beat.stopped
        ]
        async with self.database.transaction() as connection:
            now = await store.read_now(connection)
            if witnesses:
                gap = timedelta(seconds=3 * self.settings.heartbeat_seconds)
                await connection.execute(workers["record_witnesses"], witnesses, now, gap)
            rows = await connection.fetch(workers["record_workers"], alive, now) if alive else []
            draining = {(row["name"], row["nonce"]) for row in rows if row["drain_requested"]}
            processes = dict.fromkeys(map(_process, beats))
            replies = {each: self._reply(drain=each in draining) for each in processes}
            stopped = [beat for beat in beats if beat.stopped]
            if stopped:
                await connection.execute(
                    workers["delete_stopped"],
                    [beat.worker for beat in stopped],
                    [beat.nonce for beat in stopped],
                )
            await _record_leases(connection, beats, replies, now)
            if replies:
                await _add_cancels_and_warnings(connection, replies, now)
        if any(row["first_heard_at"] == now for row in rows):
            self.gate.call()  # a new worker
        return replies


def _process(heartbeat: Heartbeat) -> Process:
    return heartbeat.worker, heartbeat.nonce


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


async def _respond(message: Msg, reply: HeartbeatReply) -> None:
    try:
        await message.respond(msgspec.json.encode(reply))
    except NatsError as error:
        log.warning("heartbeat reply failed", error=error)


def _log_failure(recording: "asyncio.Task[Replies]") -> None:
    """Retrieve the exception of a recording that timed out, or the event loop reports it."""
    if not recording.cancelled() and recording.exception() is not None:
        log.debug("heartbeats not recorded", error=recording.exception())


async def _record_leases(
    connection: Connection, heartbeats: list[Heartbeat], replies: Replies, now: datetime
) -> None:
    """Record named leases; add those to release and those to renew to the replies."""
    named = [(lease, beat.worker, beat.nonce) for beat in heartbeats for lease in beat.leases]
    if not named:
        return
    rows = await connection.fetch(
        workers["record_leases"],
        [lease for lease, _, _ in named],
        [worker for _, worker, _ in named],
        [nonce for _, _, nonce in named],
        now,
    )
    for row in rows:
        reply = replies[row["worker"], row["nonce"]]
        if row["reason"] == "unclaimed":
            reply.renew.append(row["id"])
        else:
            reply.release.append(ReleaseLease(lease=row["id"], reason=row["reason"]))


async def _add_cancels_and_warnings(
    connection: Connection, replies: Replies, now: datetime
) -> None:
    """Add runs to stop, until they have ended, and problems with messages to the replies."""
    names, nonces = [name for name, _ in replies], [nonce for _, nonce in replies]
    for row in await connection.fetch(workers["cancels"], names, nonces):
        cancel = CancelRun(run=row["run_id"], lease=row["lease_id"], reason=row["reason"])
        replies[row["worker"], row["nonce"]].cancel.append(cancel)
    for row in await connection.fetch(workers["warnings"], names, nonces, now):
        warning = LeaseWarning(lease=row["id"], message=row["warning"])
        replies[row["worker"], row["nonce"]].warnings.append(warning)


async def push_to_worker(broker: Broker, worker: str, instructions: CancelPush) -> None:
    """Send instructions ahead of the next heartbeat reply, which repeats them; may be lost."""
    try:
        await broker.client.publish(subjects.cancel(worker), msgspec.json.encode(instructions))
    except (OSError, InvalidName, NatsError) as error:
        log.debug("push failed", worker=worker, error=error)


async def send_own_heartbeat(broker: Broker, settings: DispatcherSettings, name: str) -> float:
    """Send the dispatcher's own heartbeat, which travels like a worker's to PostgreSQL."""
    heartbeat = Heartbeat(worker=subjects.DISPATCHER, nonce=name)
    timeout = settings.heartbeat_seconds
    try:
        await ask(broker, subjects.WITNESS, heartbeat, HeartbeatReply, timeout=timeout)
    except RequestFailed as error:
        raise BrokerUnavailable(f"own heartbeat: {error}") from error
    return settings.heartbeat_seconds
