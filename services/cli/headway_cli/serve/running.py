"""The `headway up` of a data folder: the note with which other commands find it, and its parts."""

import os
from pathlib import Path

import msgspec
from msgspec import Struct

# A file of the data folder; it holds secrets.
NOTE_NAME = "running.json"


class NothingRuns(Exception):
    """No URL was given, and no `headway up` runs on the data folder."""


class PartEnded(Exception):
    """A process that `up` or `bench` needs has ended."""


class Running(Struct, frozen=True, kw_only=True):
    """A running `up`: its process, the addresses of its servers, and its credentials."""

    nats_url: str
    pid: int
    database_url: str | None = None
    url: str = ""
    token: str = ""
    ticket_key: str = ""


def display(folder: Path) -> str:
    """Write a folder so that it is recognizable as one."""
    return str(folder) if folder.is_absolute() else f"./{folder}"


def find_running(folder: Path) -> Running:
    """Find the `up` that runs on a data folder; raises `NothingRuns` if there is none."""
    where, path = display(folder), folder / NOTE_NAME
    try:
        running = msgspec.json.decode(path.read_bytes(), type=Running)
    except FileNotFoundError:
        raise NothingRuns(
            f"HEADWAY_URL is not set, and no 'headway up' runs in {where}: start it first"
        ) from None
    except (OSError, msgspec.DecodeError) as error:
        raise NothingRuns(f"{path} cannot be read: {error}") from error
    try:
        os.kill(running.pid, 0)
    except ProcessLookupError:
        raise NothingRuns(
            f"HEADWAY_URL is not set, and the 'headway up' that ran in {where} has ended "
            f"without a clean stop (process {running.pid} is gone): start it again"
        ) from None
    except PermissionError:
        pass  # it belongs to another user
    return running


def find_alive(folder: Path) -> Running | None:
    """Find the `up` that runs on a data folder; `None` if there is none."""
    try:
        return find_running(folder)
    except NothingRuns:
        return None
