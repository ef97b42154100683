"""Metrics of the services at `/metrics`, compared with the tables."""

import asyncio
import json
from datetime import timedelta
from types import SimpleNamespace

import pytest
from headway import App, manual, retry
from headway_cli.serve.worker import meter_of
from headway_contract.work import GroupChanged, JobChanged
from headway_dispatcher import metrics as dispatcher_metrics
from headway_dispatcher.store import metric_queries
from headway_postgres_kit import note
from headway_service_kit.metrics import CONTENT_TYPE, Meter, scrape
from prometheus_client.parser import text_string_to_metric_families
from support.cadences import when_made_due
from support.gates import START, Gates
from support.plans import FILL, outline, rows_read, scans_of
from support.proxy import Proxy
from support.world import World, until


class Scraped:
    """The metrics of a scrape."""

    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}

    def by(self, name: str, *labels: str) -> dict[tuple[str, ...], float]:
        """Return the values of a metric, summed by these labels."""
        found: dict[tuple[str, ...], float] = {}
        for family in self.families.values():
            for sample in family.samples:
                if sample.name == name:
                    key = tuple(sample.labels[label] for label in labels)
                    found[key] = found.get(key, 0) + sample.value
        return found

    def value(self, name: str) -> float:
        return self.by(name)[()]


async def scraped(service) -> Scraped:
    """Scrape a service over HTTP, as Prometheus does."""
    reader, writer = await asyncio.open_connection("127.0.0.1", service.health.port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    assert head.startswith("HTTP/1.1 200 OK")
    assert f"Content-Type: {CONTENT_TYPE}" in head
    return Scraped(body)


@pytest.fixture
def scene():
    """Return jobs that succeed, fail once, fail for good, or run until released."""
    release = asyncio.Event()
    app = App("test")
    app.group("capped", max_active=7)
    app.group("held", max_active=0)

    @app.job("good", group="capped", max_active=3)
    @when_made_due()
    async def good(ctx): ...

    @app.job("flaky", group="capped")
    @when_made_due()
    @retry(attempts=2, interval=0.01)
    async def flaky(ctx):
        if ctx.attempt == 1:
            raise ValueError("once")

    @app.job("bad")
    @when_made_due()
    @retry(attempts=1)
    async def bad(ctx):
        raise ValueError("for good")

    @app.job("slow")
    @when_made_due()
    async def slow(ctx):
        await release.wait()

    @app.job("stuck", group="held")
    @when_made_due()
    async def stuck(ctx): ...

    app.schedule("by-hand", job="good", when=manual())
    return SimpleNamespace(app=app, release=release)


async def counted(world, query: str) -> dict[tuple[str, ...], float]:
    return {tuple(row.values())[:-1]: row["count"] for row in await world.rows(query)}


async def test_the_figures_are_those_of_the_tables(world, scene):
    fresh = {"metrics_age_seconds": 0.0}
    dispatcher = await world.dispatcher(**fresh)
    worker = await world.worker(scene.app, worker_slots=10)
    of_worker = meter_of(worker, world.broker, 10)
    scheduler = await world.scheduler(scene.app, **fresh)
    manifests = scene.app.definitions().manifests
    await world.make_due(
        *(manifest.external_id for manifest in manifests if manifest.external_id != "by-hand")
    )
    scheduler.wake("tick")
    await world.until(
        "SELECT count(*) = 3 FROM dispatcher.work_queue WHERE state = 'settled'", within=30
    )
    await world.until("SELECT count(*) FROM dispatcher.run WHERE state = 'in_progress'")
    # A run is still active, so the next fire of its manifest is skipped.
    name = await world.value("SELECT external_id FROM scheduler.manifest WHERE job = 'slow'")
    await world.make_due(name)
    scheduler.wake("tick")
    await world.until("SELECT count(*) FROM scheduler.occurrence WHERE decision = 'skipped'")
    await world.until("SELECT NOT EXISTS (SELECT FROM scheduler.outbox)")
    await world.until("SELECT count(*) = 2 FROM scheduler.work")
    dispatcher.wake("waits")
    await world.until("SELECT count(*) FROM dispatcher.closed_lane")

    metrics = await scraped(dispatcher)
    assert metrics.by("headway_dispatcher_work_settled_total", "group", "job", "outcome") == (
        await counted(
            world,
            "SELECT group_name, job, outcome, count(*) FROM dispatcher.work_queue"
            " WHERE state = 'settled' GROUP BY 1, 2, 3",
        )
    )
    assert metrics.by("headway_dispatcher_retries_total", "group", "job", "reason") == {
        ("capped", "flaky", "retry"): 1
    }
    assert metrics.by("headway_dispatcher_dead_letters_total", "group", "job", "reason") == {
        ("bad", "bad", "attempts_exhausted"): 1
    }
    assert metrics.by("headway_dispatcher_dead_letters_awaiting", "group") == {("bad",): 1}
    assert metrics.by("headway_dispatcher_waiting_works", "group", "reason") == (
        await counted(
            world, "SELECT group_name, reason, count(*) FROM dispatcher.waiting GROUP BY 1, 2"
        )
    )
    assert metrics.by("headway_dispatcher_waiting_works", "group", "reason") == {
        ("held", "group_cap"): 1
    }
    assert metrics.by("headway_dispatcher_active_runs", "group", "job", "state") == {
        ("slow", "slow", "in_progress"): 1
    }
    assert metrics.value("headway_dispatcher_counted_runs") == 1
    assert metrics.value("headway_dispatcher_global_limit_runs") == 100
    assert metrics.by("headway_dispatcher_group_limit_runs", "group") == {
        ("capped",): 7,
        ("held",): 0,
    }
    assert metrics.by("headway_dispatcher_job_limit_runs", "job") == {("good",): 3}
    assert metrics.by("headway_dispatcher_workers", "job") == {
        (job,): 1 for job in ("good", "flaky", "bad", "slow", "stuck")
    }
    assert metrics.value("headway_dispatcher_worker_slots") == 10
    runs = await world.value("SELECT count(*) FROM dispatcher.run")
    assert metrics.value("headway_dispatcher_runs_admitted_total") == runs == 5
    first = await world.value(
        "SELECT count(*) FROM dispatcher.run WHERE attempt = 1 AND started_at IS NOT NULL"
    )
    assert (
        sum(metrics.by("headway_dispatcher_start_lateness_seconds_count", "group").values())
        == first
    )
    assert metrics.by("headway_dispatcher_metrics_source_up", "source") == {
        ("database",): 1, ("nats",): 1,
    }  # fmt: skip
    assert metrics.by("headway_dispatcher_consumer_pending_messages", "consumer").keys() == {
        ("intake",), ("projector",),
    }  # fmt: skip
    assert len(metrics.by("headway_dispatcher_stream_bytes", "stream")) == 4
    assert metrics.value("headway_dispatcher_outbox_age_seconds") < 30
    assert metrics.value("headway_dispatcher_database_connections") >= 1
    assert metrics.value("headway_dispatcher_nats_connected") == 1
    passes = metrics.by("headway_dispatcher_pass_seconds_count", "pass")
    assert passes["gate",] >= 1
    assert set(metrics.by("headway_dispatcher_pass_age_seconds", "pass")) >= set(passes)

    metrics = await scraped(scheduler)
    assert metrics.by("headway_scheduler_fires_total", "group", "cause") == (
        await counted(
            world,
            "SELECT group_name, split_part(cause, ':', 1), count(*) FROM scheduler.occurrence"
            " JOIN scheduler.manifest ON manifest.id = manifest_id"
            " WHERE decision = 'queued' GROUP BY 1, 2",
        )
    )
    assert metrics.by("headway_scheduler_skips_total", "reason") == (
        await counted(
            world,
            "SELECT reason, count(*) FROM scheduler.occurrence WHERE decision = 'skipped'"
            " GROUP BY 1",
        )
    )
    assert sum(metrics.by("headway_scheduler_fire_lateness_seconds_count", "group").values()) == 5
    assert metrics.value("headway_scheduler_leader") == 1
    assert metrics.value("headway_scheduler_unsettled_works") == 2
    assert (
        metrics.value("headway_scheduler_due_manifests"),
        metrics.value("headway_scheduler_due_age_seconds"),
    ) == (0, 0)
    assert metrics.by("headway_scheduler_consumer_pending_messages", "consumer").keys() == {
        ("intake",)
    }

    metrics = Scraped(await scrape([of_worker]))
    assert metrics.value("headway_worker_slots") == 10
    assert metrics.value("headway_worker_busy_slots") == 1
    ended = "SELECT job, state, count(*) FROM dispatcher.run WHERE finished_at IS NOT NULL"
    assert metrics.by("headway_worker_runs_total", "job", "outcome") == (
        await counted(world, f"{ended} GROUP BY 1, 2")
    )
    assert sum(metrics.by("headway_worker_body_seconds_count", "job").values()) == 4
    scene.release.set()
    await world.until("SELECT count(*) = 4 FROM dispatcher.work_queue WHERE state = 'settled'")


async def test_a_trigger_and_a_cancel_are_counted_as_such(world, scene):
    dispatcher = await world.dispatcher(metrics_age_seconds=0.0)
    scheduler = await world.scheduler(scene.app, metrics_age_seconds=0.0)
    async with world.client() as headway:
        await headway.trigger("by-hand")
        await world.until("SELECT count(*) FROM dispatcher.work_queue")
        dispatcher.wake("waits")

        async def waits() -> bool:
            waiting = (await scraped(dispatcher)).by(
                "headway_dispatcher_waiting_works", "group", "reason"
            )
            return waiting == {("capped", "no_worker"): 1}

        await until(waits, within=20, what="it waits for a worker")
        [work] = [row["id"] for row in await world.rows("SELECT id FROM dispatcher.work_queue")]
        await headway.cancel(work)
    await world.until("SELECT count(*) FROM dispatcher.work_queue WHERE state = 'settled'")
    metrics = await scraped(dispatcher)
    assert metrics.by("headway_dispatcher_work_settled_total", "group", "job", "outcome") == {
        ("capped", "good", "cancelled"): 1
    }
    metrics = await scraped(scheduler)
    assert metrics.by("headway_scheduler_fires_total", "group", "cause") == {
        ("capped", "trigger"): 1
    }
    # A trigger has no due time, so no lateness is recorded.
    assert metrics.by("headway_scheduler_fire_lateness_seconds_count", "group") == {}


@pytest.mark.thorough
async def test_without_the_database_the_other_metrics_are_served(database_url, nats_url, database):
    proxy = await Proxy(database_url).start()
    world = World(proxy.url, nats_url, database, None)
    dispatcher = await world.dispatcher(metrics_age_seconds=0.0, database_answer_seconds=1.0)
    scheduler = await world.scheduler(metrics_age_seconds=0.0, database_answer_seconds=1.0)
    try:
        for service in (dispatcher, scheduler):
            name = f"headway_{service.name}_metrics_source_up"
            assert (await scraped(service)).by(name, "source")["database",] == 1
        proxy.stall(new_ones_too=True)
        for service in (dispatcher, scheduler):
            name = f"headway_{service.name}"
            async with asyncio.timeout(5):
                metrics = await scraped(service)
            assert metrics.by(f"{name}_metrics_source_up", "source") == {
                ("database",): 0, ("nats",): 1,
            }  # fmt: skip
            assert metrics.by(f"{name}_outbox_rows") == {}
            assert metrics.value(f"{name}_nats_connected") == 1

        async def failed() -> bool:
            metrics = await scraped(dispatcher)
            return bool(metrics.by("headway_dispatcher_pass_failures_total", "pass"))

        await until(failed, within=20, what="passes that failed are counted")
    finally:
        proxy.flow()
        await world.stop()
        await proxy.stop()


async def test_rolled_back_notes_are_not_counted(database):
    committed: list[list[str]] = []
    database.on_commit = committed.append
    note("outside")
    async with database.transaction():
        note("one", "two")
        assert committed == []
    with pytest.raises(ZeroDivisionError):
        async with database.transaction():
            note("three")
            raise ZeroDivisionError
    async with database.transaction():
        pass
    assert committed == [["one", "two"]]


@pytest.mark.breaks_tables("fills the queue by hand")
async def test_a_scrape_reads_a_bounded_part_of_a_backlog(database):
    gates = Gates(database)
    await gates.tell(
        *(GroupChanged(group=name, version=1) for name in ("full", "later", "keyed")),
        JobChanged(job="etl", version=1),
    )
    most = 500
    async with database.acquire() as connection:
        for group, hold_reason, key in (
            ("full", None, None),
            ("later", "not_before", None),
            ("keyed", "key", "k"),
        ):
            await connection.execute(FILL, 4000, group, "etl", START, hold_reason, key)
        await connection.execute(
            "UPDATE dispatcher.work_queue SET state = 'settled', outcome = 'cancelled',"
            " wait_reason = NULL, settled_at = received_at WHERE group_name = 'full'"
            " AND rank > (SELECT min(rank) + interval '1.5 s' FROM dispatcher.work_queue"
            " WHERE group_name = 'full')"
        )
        await connection.execute("VACUUM ANALYZE dispatcher.work_queue")
        text = await connection.fetchval(
            f"EXPLAIN (ANALYZE, FORMAT JSON) {metric_queries['standing']}",
            timedelta(seconds=60),
            most,
        )
    plan = json.loads(text)[0]["Plan"]
    assert "Seq Scan" not in scans_of(plan, "work_queue"), outline(plan)
    # A short lane may be read completely, by index and again by rows; nothing else is, and
    # settled work never is.
    lane = 1501
    assert rows_read(plan) < 2 * lane + 2 * most + 200, outline(plan)


async def test_counts_are_those_of_the_process_that_made_them():
    """A meter counts only its own samples, although another meter has the same measures."""
    meter, other = (Meter(dispatcher_metrics.MEASURES) for _ in range(2))
    samples = [
        dispatcher_metrics.Sample(dispatcher_metrics.DEAD_LETTERS, ("g", "j", "not_retryable")),
        dispatcher_metrics.Sample(dispatcher_metrics.EVENTS_REFUSED, ("lease_ended",)),
    ]
    meter.count(samples)
    metrics = Scraped(await scrape([meter]))
    assert metrics.by("headway_dispatcher_dead_letters_total", "reason") == {("not_retryable",): 1}
    assert metrics.by("headway_dispatcher_events_refused_total", "reason") == {("lease_ended",): 1}
    assert Scraped(await scrape([other])).by("headway_dispatcher_dead_letters_total") == {}
