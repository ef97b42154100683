"""Services that start before `headway provision` wait for it and report the reason."""

import asyncio
import logging
import urllib.error
import urllib.request

import pytest
from headway_contract import subjects
from headway_embedded import free_port
from support.apps import nightly
from support.world import until


def get(address: str, path: str) -> tuple[int, str]:
    """Return the status and the body of a health page; status 0 if the port is closed."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


@pytest.fixture
def app():
    return nightly()


async def test_a_dispatcher_waits_for_provisioning_and_readyz_gives_the_reason(world, app, caplog):
    address = f"127.0.0.1:{free_port()}"
    with caplog.at_level(logging.WARNING):
        starting = asyncio.create_task(world.dispatcher(provision="manual", health_address=address))

        async def is_waiting() -> bool:
            assert not starting.done(), starting
            return (await asyncio.to_thread(get, address, "/readyz"))[0] == 503

        await until(is_waiting, within=20, what="/readyz answers while it waits")
    _, body = await asyncio.to_thread(get, address, "/readyz")
    assert f"waiting for the streams in NATS: NATS lacks {subjects.WORK_STREAM}" in body
    assert "run 'headway provision'" in body
    # Kubernetes must not restart it for waiting.
    assert (await asyncio.to_thread(get, address, "/livez"))[0] == 200
    assert 'dispatcher waits for the streams in NATS" error="NATS lacks' in caplog.text

    await world.provision()
    await asyncio.wait_for(starting, 30)
    assert (await asyncio.to_thread(get, address, "/livez"))[0] == 200
    await world.worker(app)
    await world.fire(app)
    await world.until_settled(within=40)


async def test_a_scheduler_decides_without_streams_and_readyz_gives_the_reason(world, app):
    scheduler = await world.fire(app)
    # The decision waits in the outbox until the stream exists.
    await world.until("SELECT count(*) = 1 FROM scheduler.work")

    async def not_ready() -> str:
        status, body = await scheduler.health.report("/readyz")
        return body if status == 503 and "intake" in body else ""

    body = await until(not_ready, within=20, what="/readyz reports that the scheduler waits")
    assert f"{subjects.SETTLED_STREAM}/{subjects.SETTLED_CONSUMER} does not exist" in body
    assert "run 'headway provision'" in body

    await world.serve(app)
    await world.until_settled(within=40)

    async def ready() -> bool:
        return (await scheduler.health.report("/readyz"))[0] == 200

    await until(ready, within=20, what="the scheduler is ready")
