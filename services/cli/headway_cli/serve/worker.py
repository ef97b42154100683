"""The `worker` command, with its health checks and metrics."""

from contextlib import AsyncExitStack
from typing import Annotated, Any

import click
from headway.worker import UnknownJobs, Worker, WorkerSettings, choose_jobs
from headway_jetstream_kit import Broker, BrokerUnavailable
from headway_service_kit.health import Health
from headway_service_kit.metrics import Measure, Meter, Readings, counter, gauge, histogram
from headway_service_kit.process import keep_trying, run, stop_on_signals
from headway_service_kit.settings import HealthAddress, NatsCreds, NatsPing, NatsUrl
from msgspec import Meta

from headway_cli.serve import settings
from headway_cli.serve.find_app import load_app
from headway_cli.serve.lifetime import exporting, unless_stopped
from headway_cli.terminal import options

# Unanswered heartbeats after which a worker is not ready.
_MISSED_BEATS = 10

SLOTS = gauge("headway_worker_slots", "Concurrent runs that the worker accepts.")
BUSY = gauge("headway_worker_busy_slots", "Slots in use.")
DRAINING = gauge("headway_worker_draining", "1 while the worker drains: it takes no new orders.")
RUNS = counter(
    "headway_worker_runs_total",
    "Finished bodies: `completed`, `failed`, `cancelled`, or `lost` if the lease was revoked.",
    *("job", "outcome"),
)
BODY = histogram("headway_worker_body_seconds", "Duration of bodies.", "job")
UNANSWERED = counter("headway_worker_heartbeats_unanswered_total", "Heartbeats without an answer.")
SILENCE = gauge(
    "headway_worker_dispatcher_silence_seconds", "Time since a dispatcher last answered."
)
CONNECTED = gauge("headway_worker_nats_connected", "1 while connected to NATS.")
RECONNECTS = counter("headway_worker_nats_reconnects_total", "Reconnects to NATS.")
MEASURES: tuple[Measure, ...] = (
    SLOTS, BUSY, DRAINING, RUNS, BODY, UNANSWERED, SILENCE, CONNECTED, RECONNECTS,
)  # fmt: skip


class WorkerProgramSettings(WorkerSettings, frozen=True, kw_only=True):
    """The settings of a worker process."""

    app: Annotated[
        str, Meta(description="Your app: `file.py`, `module` or `module:name`, or a YAML file.")
    ]
    nats_url: NatsUrl
    nats_creds: NatsCreds = None
    nats_ping_seconds: NatsPing = 3.0
    health_address: HealthAddress = "127.0.0.1:0"


@click.command()
@options.app_option
@options.nats_option
@options.health_option
@options.setting("--name", "worker_name", "Name of the worker; by default a new one each start.")
@options.slots_option
@options.repeated("--job", "jobs", "NAME", "Serve only this job; may be repeated. By default all.")
@options.debug_option
def worker(jobs: tuple[str, ...], **flags: Any) -> None:
    """Run a worker, which runs the jobs of your app.

    It needs only NATS. Run as many as you like. On a signal it finishes its runs before it exits.
    """
    given = settings.read(WorkerProgramSettings, flags)
    loaded = load_app(given.app)
    loaded.definitions()
    try:
        choose_jobs(loaded, jobs)
    except UnknownJobs as error:
        raise click.BadParameter(f"{error}.", param_hint="'--job'") from error

    async def serve() -> None:
        stop = stop_on_signals()
        connecting = keep_trying(
            lambda: Broker.connect(
                given.nats_url,
                name="headway-worker",
                credentials=given.nats_creds,
                # Private, so that permissions can keep other workers from listening there.
                inbox_prefix=f"_INBOX.{given.worker_name}" if given.worker_name else None,
                ping_seconds=given.nats_ping_seconds,
            ),
            what="NATS at HEADWAY_NATS_URL is not reachable",
            faults=(BrokerUnavailable,),
        )
        async with AsyncExitStack() as stack:
            broker = await unless_stopped(connecting, stop)
            stack.push_async_callback(broker.close)
            program = Worker(loaded, broker, given, only=jobs)
            health = _health(program, broker, given)
            await health.start(given.health_address)
            stack.push_async_callback(health.stop)
            await program.run(stop)

    with exporting("headway-worker"):
        run(serve())


def _health(program: Worker, broker: Broker, given: WorkerSettings) -> Health:
    async def broker_answers() -> str | None:
        try:
            await broker.ping()
        except BrokerUnavailable as error:
            return f"NATS: {error}"
        return None

    async def dispatcher_answers() -> str | None:
        silent = program.heartbeats.silence()
        if program.heartbeats.last_reply is None:
            return "no dispatcher has answered yet"
        if silent > _MISSED_BEATS * given.heartbeat_seconds:
            return f"no dispatcher has answered for {silent:.0f} s"
        return None

    meters = [meter_of(program, broker, given.worker_slots)]
    return Health("worker", live=[], ready=[broker_answers, dispatcher_answers], meters=meters)


def meter_of(worker: Worker, broker: Broker, slots: int) -> Meter:
    """Make a meter of a worker."""
    meter = Meter(MEASURES)

    def ended(job: str, outcome: str, seconds: float) -> None:
        meter.add(RUNS, job, outcome)
        meter.observe(BODY, seconds, job)

    def read() -> Readings:
        return {
            SLOTS: {(): slots},
            BUSY: {(): worker.busy},
            DRAINING: {(): float(worker.draining)},
            UNANSWERED: {(): worker.heartbeats.unanswered},
            SILENCE: {(): worker.heartbeats.silence()},
            CONNECTED: {(): float(broker.client.is_connected)},
            RECONNECTS: {(): broker.reconnects},
        }

    worker.on_ended = ended
    meter.read_from(read)
    return meter
