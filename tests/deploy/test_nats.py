"""The committed configuration of NATS, with generated passwords: who gets in, and who may do what."""

import asyncio
import shutil
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from headway import App
from headway.worker import Worker, WorkerSettings
from headway_contract import subjects
from headway_embedded import free_port
from headway_embedded.binaries import nats_program
from headway_jetstream_kit import Broker, BrokerUnavailable
from support.cadences import when_made_due
from support.world import World

from .conftest import DEPLOY, make_secrets


@pytest_asyncio.fixture
async def urls(tmp_path):
    """A server as compose and the overlay run it; the URLs of its users by their file's name."""
    folder, port = tmp_path / "nats", free_port()
    make_secrets(folder)
    config = (DEPLOY / "k8s" / "overlays" / "dev" / "nats.conf").read_text()
    (folder / "nats.conf").write_text(
        config.replace("/data", str(tmp_path / "data")).replace("8222", str(free_port()))
    )
    server = await asyncio.create_subprocess_exec(
        *(nats_program(), "--config", folder / "nats.conf"),
        *("--addr", "127.0.0.1", "--port", str(port)),
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield {
            name: (folder / name).read_text().replace("nats:4222", f"127.0.0.1:{port}")
            for name in ("nats-url", "nats-url-worker")
        }
    finally:
        server.terminate()
        await server.wait()
        shutil.rmtree(tmp_path / "data", ignore_errors=True)


@pytest.fixture
def app():
    app = App("test")

    @app.job("job", group="ops")
    @when_made_due()
    async def job(ctx):
        ctx.progress(50, "half of it")

    return app


async def test_nobody_comes_in_without_a_password(urls):
    services = await Broker.connect(urls["nats-url"], name="services")
    await services.close()
    address = urlsplit(urls["nats-url"])
    for login in ("", "services:guess@", "worker:guess@"):
        with pytest.raises(BrokerUnavailable, match="Authorization Violation"):
            await Broker.connect(
                f"nats://{login}{address.hostname}:{address.port}", name="test", timeout=0.5
            )


async def test_a_worker_runs_jobs_and_can_do_no_more(urls, app, database_url, database, caplog):
    services = await Broker.connect(urls["nats-url"], name="services")
    broker = await Broker.connect(urls["nats-url-worker"], name="worker")
    world = World(database_url, urls["nats-url"], database, services)
    stop = asyncio.Event()
    running = asyncio.create_task(
        Worker(app, broker, WorkerSettings(heartbeat_seconds=0.2)).run(stop)
    )
    try:
        await world.dispatcher()
        await world.fire(app)
        await world.until_settled()
        assert "permissions violation" not in caplog.text
        for verb in (
            f"STREAM.INFO.{subjects.RUNS_STREAM}",
            f"STREAM.DELETE.{subjects.RUNS_STREAM}",
        ):
            with pytest.raises(BrokerUnavailable):
                await broker.api(verb, timeout=1)
        assert (await services.api(f"STREAM.INFO.{subjects.RUNS_STREAM}"))["config"]
    finally:
        stop.set()
        await running
        await world.stop()
        await broker.close()
        await services.close()
