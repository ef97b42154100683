"""What a worker measures."""

from headway.worker import Worker
from headway_jetstream_kit import Broker
from headway_service_kit.metrics import Measure, Meter, Readings, counter, gauge, histogram

SLOTS = gauge("headway_worker_slots", "How many runs it may have at once.")
BUSY = gauge("headway_worker_busy_slots", "How many of its slots are taken.")
DRAINING = gauge("headway_worker_draining", "1 once it takes no more orders.")
RUNS = counter(
    "headway_worker_runs_total",
    "Bodies that ended: `completed`, `failed`, `cancelled`, or `lost` if the lease was taken away.",
    *("job", "outcome"),
)
BODY = histogram("headway_worker_body_seconds", "How long bodies took.", "job")
UNANSWERED = counter(
    "headway_worker_heartbeats_unanswered_total", "Heartbeats that no dispatcher has answered."
)
SILENCE = gauge(
    "headway_worker_dispatcher_silence_seconds", "How long ago a dispatcher last answered."
)
CONNECTED = gauge("headway_worker_nats_connected", "1 while connected to NATS.")
RECONNECTS = counter(
    "headway_worker_nats_reconnects_total", "How often NATS was connected to again."
)
MEASURES: tuple[Measure, ...] = (
    SLOTS, BUSY, DRAINING, RUNS, BODY, UNANSWERED, SILENCE, CONNECTED, RECONNECTS,
)  # fmt: skip


def meter_of(worker: Worker, broker: Broker, slots: int) -> Meter:
    """A meter that counts what a worker does."""
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
