"""`/livez` and `/readyz` report the real state, with the reason in the body."""

import asyncio

import pytest
from headway_embedded import NatsServer
from headway_service_kit.health import AddressInUse, Health
from support.servers import needs_embedded
from support.world import World, until


async def get(port: int, path: str) -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body


async def test_services_are_live_and_ready(world):
    for service in (await world.dispatcher(), await world.scheduler()):
        assert await get(service.health.port, "/livez") == (200, f"{service.name} is live\n")

        async def ready(service=service):  # on a busy machine the first passes may be late
            return await get(service.health.port, "/readyz") == (200, f"{service.name} is ready\n")

        await until(ready, within=60, what="ready")
        assert (await get(service.health.port, "/other"))[0] == 404


async def test_without_nats_a_service_is_live_but_not_ready(database_url, database, tmp_path):
    needs_embedded()
    server = NatsServer(tmp_path / "nats")
    await server.start()
    world = World(database_url, server.url, database, None)
    dispatcher = await world.dispatcher()
    await server.kill()

    async def not_ready():
        status, body = await get(dispatcher.health.port, "/readyz")
        return body if status == 503 and "NATS" in body else None

    body = await until(not_ready, within=60, what="not ready")
    assert body.startswith("dispatcher is not ready\n")
    assert (await get(dispatcher.health.port, "/livez"))[0] == 200

    await server.start()

    async def ready():
        return (await get(dispatcher.health.port, "/readyz"))[0] == 200

    await until(ready, within=60, what="ready again")
    await world.stop()
    await server.stop()


async def test_a_port_in_use_is_named():
    first, second = (Health("x", live=[], ready=[]) for _ in range(2))
    await first.start("127.0.0.1:0")
    with pytest.raises(AddressInUse, match=f"127.0.0.1:{first.port}.*HEADWAY_HEALTH_ADDRESS"):
        await second.start(f"127.0.0.1:{first.port}")
    await first.stop()


async def test_a_malformed_request_is_harmless():
    health = Health("x", live=[], ready=[])
    await health.start("127.0.0.1:0")
    for nonsense in (b"", b"\r\n", b"\xff\xfe\r\n", b"GET\r\n"):
        reader, writer = await asyncio.open_connection("127.0.0.1", health.port)
        writer.write(nonsense)
        writer.write_eof()
        await reader.read()
        writer.close()
    assert (await get(health.port, "/livez"))[0] == 200
    await health.stop()
