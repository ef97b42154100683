"""A worker process: fetch, claim, run, tell; and an orderly end."""

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
from headway_contract.control import Heartbeat, HeartbeatReply
from headway_contract.orders import RunDispatched
from headway_jetstream_kit import Broker, BrokerUnavailable, ConsumerMissing, Message, Puller
from headway_jetstream_kit.limited_log import LimitedLog
from headway_jetstream_kit.pull import ack, nak
from headway_jetstream_kit.tasks import end
from msgspec import Meta, Struct

from headway.define.app import App
from headway.define.jobs import Job
from headway.worker.execution import HAND_BACK_SECONDS
from headway.worker.finished_leases import Finished
from headway.worker.fork_server import Nursery
from headway.worker.heartbeat import Heart, Instructions
from headway.worker.leases import Lease
from headway.worker.run_log import CapturedLogging
from headway.worker.tenure import OnEnded, Tenure

logger = logging.getLogger(__name__)

# How long a drain waits for somebody to hear of it before it hands anything back.
_SAY_SO_SECONDS = 1.0
# What the last words of a lease may take, after its body was given up.
_LAST_WORDS_SECONDS = 5.0
# How long orders may not be there to fetch before the worker warns.
_FETCH_TROUBLE_SECONDS = 10.0
# As long as a heartbeat can tell it.
_LONGEST_VERSION = 255


class WorkerSettings(Struct, frozen=True, kw_only=True):
    """How one worker process behaves."""

    worker_name: Annotated[
        str | None, Meta(description="The worker's name; without it a new one at each start.")
    ] = None
    worker_slots: Annotated[
        int, Meta(ge=1, description="How many runs at once, over all jobs of the worker.")
    ] = 10
    heartbeat_seconds: Annotated[
        float,
        Meta(
            gt=0,
            description="How often a worker says that it lives, and what it holds. "
            "The dispatcher's word wins once it has answered.",
        ),
    ] = 3.0
    drain_seconds: Annotated[
        float,
        Meta(ge=0, description="How long runs under way may take when the worker is to stop."),
    ] = 30.0


class UnknownJobs(Exception):
    """Jobs were named that the app has no bodies of."""


def choose_jobs(app: App, only: Iterable[str] = ()) -> dict[str, Job]:
    """The jobs of an app that a worker serves: those named, or without names all.

    Raises `UnknownJobs` if the app has no body of one of them.
    """
    jobs, names = app.jobs, list(only)
    unknown = [name for name in names if name not in jobs]
    if unknown:
        raise UnknownJobs(
            f"{app.name} has no body of the job {', '.join(map(repr, unknown))}: "
            f"it has those of {', '.join(jobs) or 'no job'}"
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
        # Slots that are kept for orders which a fetch is just taking.
        self._promised = 0
        # Slots in use by each job, claims that are under way included.
        self._used: Counter[str] = Counter()
        self._tenures: dict[UUID, Tenure] = {}
        # Leases whose claim is under way.
        self._claiming: set[UUID] = set()
        processes = [job for job in self._jobs.values() if job.process]
        self._nursery = Nursery(processes) if processes else None
        # Leases that this process has had: an order that is delivered again is not run again.
        self._finished = Finished(broker)
        self._tasks: set[asyncio.Task[None]] = set()
        self._draining = asyncio.Event()
        self._warned: set[tuple[UUID, str]] = set()
        self._stopped = False
        # Told of every body that ended.
        self.on_ended: OnEnded | None = None
        self.heart = Heart(
            broker,
            describe=self._describe,
            obey=self._obey,
            on_silence=self._on_silence,
            interval=settings.heartbeat_seconds,
        )

    @property
    def busy(self) -> int:
        """How many slots are taken."""
        return self._settings.worker_slots - self._free

    @property
    def draining(self) -> bool:
        """Whether it takes no more orders."""
        return self._draining.is_set()

    async def run(self, stop: asyncio.Event) -> None:
        """Work until told to stop, then drain."""
        logger.info("worker %s serves %s", self.name, ", ".join(self._jobs) or "no job")
        captured = CapturedLogging()
        if any(job.capture_logging for job in self._jobs.values()):
            logging.getLogger().addHandler(captured)
        try:
            if self._nursery is not None:
                await self._nursery.start()
            await self._work_until(stop)
        finally:
            if self._nursery is not None:
                await self._nursery.stop()
            logging.getLogger().removeHandler(captured)

    async def _work_until(self, stop: asyncio.Event) -> None:
        await self.heart.listen(self.name)
        beating = asyncio.create_task(self.heart.beat_for_ever())
        fetching = [asyncio.create_task(self._serve(job)) for job in self._jobs]
        gone = asyncio.create_task(self._broker.closed.wait())
        asked = [
            gone,
            asyncio.create_task(stop.wait()),
            asyncio.create_task(self._draining.wait()),
        ]
        try:
            await asyncio.wait([*asked, beating, *fetching], return_when=asyncio.FIRST_COMPLETED)
            for endless in (beating, *fetching):
                if endless.done():
                    endless.result()
            if gone.done():
                raise BrokerUnavailable(f"{self._broker.where}: the connection was closed for good")
        finally:
            self._draining.set()
            self._begin_no_more()
            # Not only with the next beat: until it is heard of, orders come for our slots, and what
            # is handed back would be ordered from us again.
            leaving = asyncio.create_task(self.heart.beat())
            await end([*fetching, *asked])
            await asyncio.wait({leaving}, timeout=_SAY_SO_SECONDS)
            # Over a connection that is lost for good nobody would hear how the runs ended.
            lost = self._broker.closed.is_set()
            await self._drain(0.0 if lost else self._settings.drain_seconds)
            await end([beating, leaving])
            self._stopped = True
            await self.heart.beat()

    async def _drain(self, seconds: float) -> None:
        """Let runs finish; hand back those that have not begun, or do not end by the deadline."""
        self._begin_no_more()
        if self._tasks:
            logger.info("draining %d run(s)", len(self._tasks))
            await asyncio.wait(self._tasks, timeout=seconds)
        for tenure in self._tenures.values():
            tenure.stop("worker_stopped")
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=HAND_BACK_SECONDS + _LAST_WORDS_SECONDS)
        await end(self._tasks)

    def _begin_no_more(self) -> None:
        for tenure in self._tenures.values():
            tenure.begin_no_more("worker_stopped")

    async def _serve(self, job: str) -> None:
        """Fetch orders of one job while there are free slots."""
        puller = Puller(self._broker, subjects.RUNS_STREAM, subjects.worker_consumer(job))
        limited, failing_since = LimitedLog(logger), None
        try:
            while True:
                await self._until_there_is_room(job)
                try:
                    await self._accept(await self._fetch(puller, job))
                    failing_since = None
                except (ConsumerMissing, BrokerUnavailable) as error:
                    # The dispatcher makes the consumer once the job is declared.
                    failing_since = failing_since or monotonic()
                    if monotonic() - failing_since > _FETCH_TROUBLE_SECONDS:
                        limited.warn("cannot fetch orders", f"job {job}: {error}")
                    await asyncio.sleep(0.3 + jitter(0.2))
        finally:
            await puller.close()

    async def _fetch(self, puller: Puller, job: str) -> list[Message]:
        """Wait for one order, then take what else is there and fits.

        Never wait for more than one: what such a pull still brings while the slots are taken
        would lie here unseen, and no other worker could have it.
        """
        messages = await puller.fetch(1)
        # One slot is for the order that is here, and one for what each other job waits for.
        share = min(self._free - self._promised - len(self._jobs), self._room(job) - 1)
        if messages and share > 0:
            self._promised += share
            try:
                messages += await puller.take(share)
            except (ConsumerMissing, BrokerUnavailable) as error:
                logger.debug("%s: %s", puller.name, error)
            finally:
                self._promised -= share
        return messages

    async def _until_there_is_room(self, job: str) -> None:
        while self._room(job) <= 0:
            self._slot_freed.clear()
            await self._slot_freed.wait()

    def _room(self, job: str) -> int:
        """How many more leases of a job may begin here."""
        most = self._jobs[job].worker_concurrency
        return self._free if most is None else min(self._free, most - self._used[job])

    async def _accept(self, messages: list[Message]) -> None:
        """Begin with as many orders as there are free slots; give a surplus back."""
        out_of_touch = False
        for message in messages:
            order = _read_order(message)
            if order is not None and order.lease in self._finished:
                await self._finished.see_to(message, order.lease)
            elif order is not None and order.lease in self._tenures:
                await self._acknowledge(message)
            elif order is None or order.job not in self._jobs:
                await nak(self._broker, message, delay=30)
            elif self._is_surplus(order):
                await nak(self._broker, message, delay=0.2 + jitter(0.2))
            elif self._would_stop(order, self.heart.silence()):
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
            # Not one order after the other through our hands: the next beat may be answered.
            await asyncio.sleep(self._settings.heartbeat_seconds)

    def _is_surplus(self, order: RunDispatched) -> bool:
        """Whether an order is not to be begun here and now.

        One that comes again during its own claim would be answered with "mine", and run twice.
        """
        full = self._room(order.job) <= 0
        return full or self._draining.is_set() or order.lease in self._claiming

    async def _work(self, message: Message, order: RunDispatched) -> None:
        """One lease from its claim to its last run's outcome."""
        lease = Lease(self._broker, order, worker=self.name, nonce=self.nonce, host=self.host)
        try:
            match await lease.claim():
                case "undecided":
                    await nak(self._broker, message, delay=1 + jitter())
                    return
                case "gone":
                    await ack(self._broker, [message])
                    return
                case "mine":
                    tenure = self._hold(lease)
                    await self._acknowledge(message)
                    await tenure.serve()
        except BrokerUnavailable as error:
            logger.warning("lease %s: %s", order.lease, error)
        except Exception:
            logger.exception("lease %s", order.lease)
        finally:
            self._claiming.discard(order.lease)
            if self._tenures.pop(order.lease, None) is not None:
                self._finished.add(lease)
            self._free += 1
            self._used[order.job] -= 1
            self._slot_freed.set()

    def _hold(self, lease: Lease) -> Tenure:
        job = self._jobs[lease.order.job]
        tenure = Tenure(lease, job, self._broker, nursery=self._nursery, on_ended=self.on_ended)
        self._tenures[lease.order.lease] = tenure
        self._claiming.discard(lease.order.lease)
        if self._draining.is_set():
            tenure.begin_no_more("worker_stopped")
        return tenure

    async def _acknowledge(self, message: Message) -> None:
        """Ack an order whose lease is ours; if that is lost, whoever gets it next will ask."""
        try:
            await ack(self._broker, [message])
        except BrokerUnavailable as error:
            logger.warning("%s: not acknowledged: %s", message.subject, error)

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
            leases=list(self._tenures),
            runs=[run for tenure in self._tenures.values() for run in tenure.running],
            draining=self._draining.is_set(),
            stopped=self._stopped,
            sent_at=utc_now(),
        )

    def _obey(self, instructions: Instructions) -> None:
        for cancel in instructions.cancel:
            if cancel.lease in self._tenures:
                self._tenures[cancel.lease].cancel(cancel.run, cancel.reason)
        for release in instructions.release:
            if release.lease in self._tenures:
                logger.warning("lease %s is no longer ours: %s", release.lease, release.reason)
                self._tenures[release.lease].release()
        if isinstance(instructions, HeartbeatReply):
            self._heed(instructions)

    def _heed(self, reply: HeartbeatReply) -> None:
        """Do what only the reply to a heartbeat says."""
        for lease in reply.renew:
            if lease in self._tenures:
                self._tenures[lease].renew_now()
        for warning in reply.warnings:
            if (warning.lease, warning.message) not in self._warned:
                logger.error("lease %s: the dispatcher says: %s", warning.lease, warning.message)
        # The dispatcher repeats its warnings for a while.
        self._warned = {(warning.lease, warning.message) for warning in reply.warnings}
        if reply.drain:
            self._draining.set()

    def _on_silence(self, seconds: float) -> None:
        """No dispatcher has answered for so long; after the orphan timeout contact is lost."""
        for tenure in self._tenures.values():
            if self._would_stop(tenure.lease.order, seconds):
                tenure.stop("lost_contact")

    @staticmethod
    def _would_stop(order: RunDispatched, silence: float) -> bool:
        """Whether the runs of an order are not to go on after such a silence, nor to begin."""
        return silence >= order.orphan_timeout_seconds and order.on_lost_contact != "continue"


def _read_order(message: Message) -> RunDispatched | None:
    """The order in a message, or none if this worker cannot read it (a newer one may)."""
    try:
        events = decode(message.body)
    except Malformed as error:
        logger.warning("an order on %s that cannot be read: %s", message.subject, error)
        return None
    first = events[0] if events else None
    if isinstance(first, Event) and isinstance(first.data, RunDispatched):
        return first.data
    return None
