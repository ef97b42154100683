"""Job consumers: exactly the declared jobs have one, whatever heartbeats name."""

import msgspec
import pytest
from headway_cli.doctor.postgresql import check_database
from headway_clock import utc_now
from headway_contract import encode, event, subjects
from headway_contract.work import JobChanged
from headway_dispatcher.provisioning import job_consumer, streams
from headway_jetstream_kit.provisioning import consumer_names, ensure_consumer, ensure_stream
from headway_jetstream_kit.publish import publish
from support.work_events import app_with, queue, until_run
from support.world import STREAMS, until

pytestmark = pytest.mark.thorough


async def publish_change(world, change: JobChanged) -> None:
    message = event(
        change, id=f"{change.job}-{change.version}", source="t", subject="x", time=utc_now()
    )
    await publish(world.broker, subjects.work("ops"), encode(message))


async def jobs_with_consumer(world) -> set[str | None]:
    names = await consumer_names(world.broker, subjects.RUNS_STREAM)
    return {subjects.job_of_consumer(name) for name in names}


async def until_jobs(world, *jobs: str) -> None:
    async def are_there() -> bool:
        return await jobs_with_consumer(world) == set(jobs)

    await until(are_there, within=20, what=f"consumers of {jobs} and no others")


async def test_declared_jobs_have_one_and_invented_names_have_none(world):
    """Thousands of invented names in heartbeats leave room for a job that is declared later."""
    await world.dispatcher()
    for number in range(3):
        jobs = [f"invented-{number}-{index}" for index in range(1_000)]
        assert not (await world.beat(f"stranger-{number}", jobs=jobs)).error
    await publish_change(world, JobChanged(job="real", version=1))
    await until_jobs(world, "real")


async def test_a_worker_may_come_before_its_job_is_declared(world):
    async def job(ctx):
        return 1

    await world.dispatcher()
    app = app_with(job)
    await world.worker(app)
    await world.until("SELECT count(*) FROM dispatcher.worker")
    assert await jobs_with_consumer(world) == set()
    await world.declare(app)
    await queue(world)
    await until_run(world, "completed")


async def test_a_deleted_consumer_comes_back_and_stray_consumers_go(world):
    stray = job_consumer("left-over", STREAMS)
    await world.provision()
    await ensure_consumer(world.broker, stray)
    await world.dispatcher()
    await publish_change(world, JobChanged(job="real", version=1))
    await until_jobs(world, "real")
    await world.broker.api(f"CONSUMER.DELETE.{subjects.RUNS_STREAM}.worker-real")
    await until_jobs(world, "real")


async def test_the_consumer_of_a_retired_job_is_deleted_with_its_last_work_and_comes_back(world):
    dispatcher = await world.dispatcher()
    await publish_change(world, JobChanged(job="job", version=1))
    await queue(world)
    await until_jobs(world, "job")
    await publish_change(world, JobChanged(job="job", version=2, retired=True))
    await world.until("SELECT retired FROM dispatcher.job_limit WHERE name = 'job'")
    dispatcher.wake("consumers")

    async def job(ctx):
        return 1

    await world.worker(app_with(job))
    await until_run(world, "completed")
    await until_jobs(world)
    await publish_change(world, JobChanged(job="job", version=3))
    await until_jobs(world, "job")


async def test_doctor_says_why_a_consumer_cannot_be_created(world):
    """If the stream is full of consumers, the operator sees the broker's error message."""
    [runs] = [stream for stream in streams(STREAMS) if stream.name == subjects.RUNS_STREAM]
    full = msgspec.structs.replace(runs, config={**runs.config, "max_consumers": 1})
    await ensure_stream(world.broker, full)
    await world.dispatcher()
    await publish_change(world, JobChanged(job="first", version=1))
    await until_jobs(world, "first")
    await publish_change(world, JobChanged(job="second", version=2))
    await world.until("SELECT consumer_error FROM dispatcher.job_limit WHERE name = 'second'")
    await world.beat("stranger", jobs=["nobody"])
    found = await check_database(world.database)
    findings = [
        (finding.verdict, finding.found) for finding in found if finding.check == "consumers"
    ]
    assert [verdict for verdict, _ in findings] == ["warning", "trouble"]
    assert "a worker serves job nobody, which no application declares" in findings[0][1]
    assert "consumer of job second" in findings[1][1]
    assert "maximum consumers limit reached" in findings[1][1]
