"""A worker process: fetch orders, claim leases, run them, and drain at the end."""

import asyncio
import importlib.metadata
import logging
import socket
from collections import Counter
from collections.abc import Iterable
from typing import Annotated
from uuid import UUID

from headway_clock import jitter, monotonic, new_nonce, utc_now
from headway_contract import Event, Malformed, decode, subjects
from headway_contract.orders import RunDispatched
from headway_contract.worker_protocol import CancelPush, Heartbeat, HeartbeatReply
from headway_jetstream_kit import Broker, BrokerUnavailable, ConsumerMissing, Message, Puller
from headway_jetstream_kit.limited_log import LimitedLog
from headway_jetstream_kit.pull import ack, nak
from headway_jetstream_kit.tasks import end
from headway_tracing.log import get_logger
from msgspec import Meta, Struct

from headway.define.app import App
from headway.define.jobs import Job
from headway.worker.context import CapturedLogging
from headway.worker.finished_leases import FinishedLeases
from headway.worker.fork_server import ForkServer
from headway.worker.heartbeat import HeartbeatSender
from headway.worker.lease_runner import HAND_BACK_SECONDS, LeaseRunner, OnEnded
from headway.worker.leases import Lease

log = get_logger(__name__)

# How long a drain waits for its heartbeat to be answered before it hands runs back.
_ANNOUNCE_SECONDS = 1.0
# How long the last events of a lease may take, after its body was abandoned.
_LAST_EVENTS_SECONDS = 5.0
# How long fetching may fail before the worker warns.
_FETCH_PATIENCE_SECONDS = 10.0
# The limit of a heartbeat.
_LONGEST_VERSION = 255


class WorkerSettings(Struct, frozen=True, kw_only=True):
    """Settings of one worker process."""

    worker_name: Annotated[
        str | None, Meta(description="Name of the worker; by default a new one at each start.")
    ] = None
    worker_slots: Annotated[
        int, Meta(ge=1, description="Runs at once, over all jobs of the worker.")
    ] = 10
    heartbeat_seconds: Annotated[
        float,
        Meta(
            gt=0,
            description="Interval between heartbeats; an interval in the dispatcher's answer wins.",
        ),
    ] = 3.0
    drain_seconds: Annotated[
        float, Meta(ge=0, description="How long running work may take when the worker stops.")
    ] = 30.0


class UnknownJobs(Exception):
    """Jobs were named for which the app has no body."""


def choose_jobs(app: App, only: Iterable[str] = ()) -> dict[str, Job]:
    """Return the named jobs of an app, or all of them; raise `UnknownJobs` for others."""
    jobs, names = app.jobs, list(only)
    unknown = [name for name in names if name not in jobs]
    if unknown:
        raise UnknownJobs(
            f"{app.name} has no body of the job {', '.join(map(repr, unknown))}: "
            f"its jobs are {', '.join(jobs) or 'not declared'}"
        )
    return {name: jobs[name] for name in names} if names else jobs


class Worker:
    """Serves the jobs of an app, or only some of them."""

    def __init__(
        self, app: App, broker: Broker, settings: WorkerSettings, *, only: Iterable[str] = ()
    ) -> None:
        self._jobs = choose_jobs(app, only)
        self._broker = broker
        self._settings = settings
        self._sdk_version = importlib.metadata.version("headway")
        self._code_version = app.version[:_LONGEST_VERSION]
        self.nonce = new_nonce()
        self.host = socket.gethostname()
        self.name = settings.worker_name or f"{app.name[:47]}-{self.nonce}"
        self._free = settings.worker_slots
        self._slot_freed = asyncio.Event()
        # Slots reserved for orders that a fetch is just taking.
        self._reserved = 0
        # Slots in use by each job, pending claims included.
        self._used: Counter[str] = Counter()
        self._runners: dict[UUID, LeaseRunner] = {}
        # Leases whose claim is pending.
        self._claiming: set[UUID] = set()
        processes = [job for job in self._jobs.values() if job.process]
        self._fork_server = ForkServer(processes) if processes else None
        # A redelivered order of a finished lease is not run again.
        self._finished = FinishedLeases(broker)
        self._tasks: set[asyncio.Task[None]] = set()
        self._draining = asyncio.Event()
        self._warned: set[tuple[UUID, str]] = set()
        self._stopped = False
        # Called for every body that ended.
        self.on_ended: OnEnded | None = None
        self.heartbeats = HeartbeatSender(
            broker,
            describe=self._describe,
            obey=self._obey,
            on_silence=self._on_silence,
            interval=settings.heartbeat_seconds,
        )

    @property
    def busy(self) -> int:
        """The number of slots in use."""
        return self._settings.worker_slots - self._free

    @property
    def draining(self) -> bool:
        """Whether it takes no more orders."""
        return self._draining.is_set()

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then drain."""
        log.info("worker started", worker=self.name, jobs=",".join(self._jobs))
        captured = CapturedLogging()
        if any(job.capture_logging for job in self._jobs.values()):
            logging.getLogger().addHandler(captured)
        try:
            if self._fork_server is not None:
                await self._fork_server.start()
            await self._work_until(stop)
        finally:
            if self._fork_server is not None:
                await self._fork_server.stop()
            logging.getLogger().removeHandler(captured)

    async def _work_until(self, stop: asyncio.Event) -> None:
        await self.heartbeats.listen(self.name)
        beating = asyncio.create_task(self.heartbeats.beat_for_ever())
        fetching = [asyncio.create_task(self._serve(job)) for job in self._jobs]
        gone = asyncio.create_task(self._broker.closed.wait())
        ends = [gone, asyncio.create_task(stop.wait()), asyncio.create_task(self._draining.wait())]
        try:
            await asyncio.wait([*ends, beating, *fetching], return_when=asyncio.FIRST_COMPLETED)
            for endless in (beating, *fetching):
                if endless.done():
                    endless.result()
            if gone.done():
                raise BrokerUnavailable(f"{self._broker.where}: the connection was closed for good")
        finally:
            self._draining.set()
            for runner in self._runners.values():
                runner.start_no_more("worker_stopped")
            # At once: until the dispatcher knows of the drain, it orders handed-back runs from this
            # worker again.
            leaving = asyncio.create_task(self.heartbeats.beat())
            await end([*fetching, *ends])
            await asyncio.wait({leaving}, timeout=_ANNOUNCE_SECONDS)
            # Over a closed connection no outcome can be published.
            lost = self._broker.closed.is_set()
            await self._drain(0.0 if lost else self._settings.drain_seconds)
            await end([beating, leaving])
            self._stopped = True
            await self.heartbeats.beat()

    async def _drain(self, seconds: float) -> None:
        """Let runs finish; hand back runs that do not end in time."""
        if self._tasks:
            log.info("worker draining", leases=len(self._tasks))
            await asyncio.wait(self._tasks, timeout=seconds)
        for runner in self._runners.values():
            runner.stop("worker_stopped")
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=HAND_BACK_SECONDS + _LAST_EVENTS_SECONDS)
        await end(self._tasks)

    async def _serve(self, job: str) -> None:
        """Fetch orders of one job while there are free slots."""
        puller = Puller(self._broker, subjects.RUNS_STREAM, subjects.worker_consumer(job))
        limited, failing_since = LimitedLog(log), None
        try:
            while True:
                while self._room(job) <= 0:
                    self._slot_freed.clear()
                    await self._slot_freed.wait()
                try:
                    await self._fetch(puller, job)
                    failing_since = None
                except (ConsumerMissing, BrokerUnavailable) as error:
                    # The dispatcher creates the consumer once the job is declared.
                    failing_since = failing_since or monotonic()
                    if monotonic() - failing_since > _FETCH_PATIENCE_SECONDS:
                        limited.warning("cannot fetch orders", job=job, error=error)
                    await asyncio.sleep(0.3 + jitter(0.2))
        finally:
            await puller.close()

    async def _fetch(self, puller: Puller, job: str) -> None:
        """Wait for one order and begin it, then take more that are ready and fit.

        Never wait for more than one: orders that such a pull brings while the slots are in use
        would be stuck here, and no other worker could take them.
        """
        messages = await puller.fetch(1)
        await self._accept(messages)
        # One slot is for the pull of each other job.
        share = min(self._free - self._reserved - len(self._jobs) + 1, self._room(job))
        if messages and messages[0].pending and share > 0:
            self._reserved += share
            more: list[Message] = []
            try:
                more = await puller.take(share)
            except (ConsumerMissing, BrokerUnavailable) as error:
                log.debug("cannot take more orders", consumer=puller.name, error=error)
            finally:
                self._reserved -= share
            await self._accept(more)

    def _room(self, job: str) -> int:
        """Return how many more leases of a job may begin here."""
        most = self._jobs[job].worker_concurrency
        return self._free if most is None else min(self._free, most - self._used[job])

    async def _accept(self, messages: list[Message]) -> None:
        """Begin as many orders as there are free slots; nak the others."""
        out_of_touch = False
        for message in messages:
            order = _read_order(message)
            if order is not None and order.lease in self._finished:
                await self._finished.handle_redelivery(message, order.lease)
            elif order is not None and order.lease in self._runners:
                await self._acknowledge(message)
            elif order is None or order.job not in self._jobs:
                await nak(self._broker, message, delay=30)
            elif self._is_surplus(order):
                await nak(self._broker, message, delay=0.2 + jitter(0.2))
            elif self._would_stop(order, self.heartbeats.silence()):
                out_of_touch = True
                await nak(self._broker, message, delay=self._settings.heartbeat_seconds + jitter())
            else:
                self._free -= 1
                self._used[order.job] += 1
                self._claiming.add(order.lease)
                task = asyncio.create_task(self._work(message, order))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        if out_of_touch:
            # Do not cycle through all orders: the next heartbeat may be answered.
            await asyncio.sleep(self._settings.heartbeat_seconds)

    def _is_surplus(self, order: RunDispatched) -> bool:
        """Return whether an order cannot begin here now, or would be claimed and run twice."""
        full = self._room(order.job) <= 0
        return full or self._draining.is_set() or order.lease in self._claiming

    async def _work(self, message: Message, order: RunDispatched) -> None:
        """Handle one lease from its claim to the outcome of its last run."""
        lease = Lease(self._broker, order, worker=self.name, nonce=self.nonce, host=self.host)
        try:
            match await lease.claim():
                case "undecided":
                    await nak(self._broker, message, delay=1 + jitter())
                case "gone":
                    await self._acknowledge(message)
                case "mine":
                    runner = self._add_runner(lease)
                    await self._acknowledge(message)
                    await runner.run()
        except BrokerUnavailable as error:
            log.warning("lease interrupted", lease=order.lease, error=error)
        except Exception:
            log.exception("lease failed", lease=order.lease)
        finally:
            self._claiming.discard(order.lease)
            if self._runners.pop(order.lease, None) is not None:
                self._finished.add(lease)
            self._free += 1
            self._used[order.job] -= 1
            self._slot_freed.set()

    def _add_runner(self, lease: Lease) -> LeaseRunner:
        job = self._jobs[lease.order.job]
        runner = LeaseRunner(lease, job, self._fork_server, self.on_ended, self._runners.__len__)
        self._runners[lease.order.lease] = runner
        self._claiming.discard(lease.order.lease)
        if self._draining.is_set():
            runner.start_no_more("worker_stopped")
        return runner

    async def _acknowledge(self, message: Message) -> None:
        """Ack an order; if the ack is lost, its next receiver asks who holds the lease."""
        try:
            await ack(self._broker, [message])
        except BrokerUnavailable as error:
            log.warning("order not acknowledged", subject=message.subject, error=error)

    def _describe(self) -> Heartbeat:
        return Heartbeat(
            worker=self.name,
            nonce=self.nonce,
            host=self.host,
            sdk="headway-python",
            sdk_version=self._sdk_version,
            code_version=self._code_version,
            jobs=list(self._jobs),
            slots=self._settings.worker_slots,
            concurrency={
                name: job.worker_concurrency
                for name, job in self._jobs.items()
                if job.worker_concurrency is not None
            },
            leases=list(self._runners),
            runs=[run for runner in self._runners.values() for run in runner.running],
            draining=self._draining.is_set(),
            stopped=self._stopped,
            sent_at=utc_now(),
        )

    def _obey(self, instructions: CancelPush) -> None:
        for cancel in instructions.cancel:
            if cancel.lease in self._runners:
                self._runners[cancel.lease].cancel(cancel.run, cancel.reason)
        for release in instructions.release:
            if release.lease in self._runners:
                log.warning("lease taken away", lease=release.lease, reason=release.reason)
                self._runners[release.lease].lease.lose()
        if not isinstance(instructions, HeartbeatReply):
            return
        for lease in instructions.renew:
            if lease in self._runners:
                self._runners[lease].renew_now()
        warnings = {(warning.lease, warning.message) for warning in instructions.warnings}
        for lease, message in warnings - self._warned:
            log.error("dispatcher warning", lease=lease, message=message)
        # The dispatcher repeats its warnings for a while.
        self._warned = warnings
        if instructions.drain:
            self._draining.set()

    def _on_silence(self, seconds: float) -> None:
        """Stop runs once no dispatcher has answered for their orphan timeout."""
        for runner in self._runners.values():
            if self._would_stop(runner.lease.order, seconds):
                runner.stop("lost_contact")

    @staticmethod
    def _would_stop(order: RunDispatched, silence: float) -> bool:
        """Return whether runs of an order must stop, or not begin, after this silence."""
        return silence >= order.orphan_timeout_seconds and order.on_lost_contact != "continue"


def _read_order(message: Message) -> RunDispatched | None:
    """Return the order in a message, or `None` if only a newer worker can read it."""
    try:
        events = decode(message.body)
    except Malformed as error:
        log.warning("order is malformed", subject=message.subject, error=error)
        return None
    first = events[0] if events else None
    if isinstance(first, Event) and isinstance(first.data, RunDispatched):
        return first.data
    return None
