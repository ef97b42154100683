"""The data folder of `up`: the port of its console stays the same, and git ignores it."""

import socket
from pathlib import Path

from headway_cli.up.services import read_or_make, settings_of_console
from headway_console.settings import ConsoleSettings


def address_of(folder: Path, port: int = 0) -> str:
    """Return the address of the console of a start on a folder."""
    given = ConsoleSettings(
        database_url="postgresql://", nats_url="nats://", console_address=f"127.0.0.1:{port}"
    )
    return settings_of_console(given, read_or_make(folder)).console_address


def test_the_next_start_uses_the_same_port(tmp_path: Path) -> None:
    before = read_or_make(tmp_path)
    assert address_of(tmp_path) == address_of(tmp_path) == f"127.0.0.1:{before.port}"
    after = read_or_make(tmp_path)
    assert (after.token, after.session_key) == (before.token, before.session_key)
    assert after.ticket_key != before.ticket_key


def test_a_port_in_use_is_not_taken(tmp_path: Path) -> None:
    first = read_or_make(tmp_path).port
    with socket.create_server(("127.0.0.1", first)):
        second = address_of(tmp_path)
        assert second != f"127.0.0.1:{first}"
    assert address_of(tmp_path) == second


def test_a_chosen_port_is_not_remembered(tmp_path: Path) -> None:
    kept = read_or_make(tmp_path).port
    assert address_of(tmp_path, port=kept + 1) == f"127.0.0.1:{kept + 1}"
    assert read_or_make(tmp_path).port == kept


def test_git_ignores_a_new_data_folder_alone(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "data"):
        read_or_make(folder)
    assert (tmp_path / "data" / ".gitignore").read_text() == "*\n"
    assert not (tmp_path / ".gitignore").exists()
