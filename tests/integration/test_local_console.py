"""The port of the console of `up` stays the same from one start to the next."""

import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from headway_cli.up.services import read_or_make, start_local_console
from headway_console.settings import ConsoleSettings

Start = Callable[..., Awaitable[int]]


@pytest.fixture
def start(database: object, database_url: str, nats_url: str, tmp_path: Path) -> Start:
    """Return a function that starts and stops a console and returns its port."""

    async def start_and_stop(port: int = 0) -> int:
        settings = ConsoleSettings(
            database_url=database_url, nats_url=nats_url, console_address=f"127.0.0.1:{port}"
        )
        local = read_or_make(tmp_path)
        console = await start_local_console(settings, local, folder=tmp_path, give_up_after=1)
        await console.stop()
        return console.port

    return start_and_stop


async def test_the_next_start_uses_the_same_port(start: Start, tmp_path: Path) -> None:
    before = read_or_make(tmp_path)
    first = await start()
    assert await start() == first
    after = read_or_make(tmp_path)
    assert (after.token, after.session_key, after.port) == (
        *(before.token, before.session_key),
        first,
    )
    assert after.ticket_key != before.ticket_key


async def test_a_port_in_use_is_not_taken(start: Start) -> None:
    first = await start()
    with socket.create_server(("127.0.0.1", first)):
        second = await start()
        assert second != first
    assert await start() == second


async def test_a_chosen_port_is_not_remembered(start: Start, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert await start(port) == port
    assert read_or_make(tmp_path).port == 0
