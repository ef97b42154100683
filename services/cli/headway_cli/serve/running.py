"""The `headway up` of a data folder: the note with which other commands find it, and its parts."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from headway_embedded import write_secret
from msgspec import Struct

# Files of the data folder that hold secrets.
NOTE_NAME = "running.json"
LOCAL_NAME = "local.json"


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


@contextmanager
def noted(folder: Path, **known: str) -> Iterator[None]:
    """Keep a note with the fields of `Running` while the body runs."""
    running = Running(pid=os.getpid(), **known)
    write_secret(folder / NOTE_NAME, msgspec.json.encode(running))
    try:
        yield
    finally:
        (folder / NOTE_NAME).unlink(missing_ok=True)


def display(folder: Path) -> str:
    """Write a folder so that it is recognizable as one."""
    return str(folder) if folder.is_absolute() else f"./{folder}"


def find_running(folder: Path) -> Running:
    """Find the `up` that runs on a data folder; raises `NothingRuns` if there is none."""
    where = display(folder)
    running = read_note(folder)
    if running is None:
        raise NothingRuns(f"HEADWAY_URL is not set, and no 'headway up' runs in {where}")
    if not is_alive(running.pid):
        raise NothingRuns(
            f"HEADWAY_URL is not set, and the 'headway up' that ran in {where} has ended "
            f"without a clean stop (process {running.pid} is gone): start it again"
        )
    return running


def find_alive(folder: Path) -> Running | None:
    """Find the `up` that runs on a data folder; `None` if there is none."""
    try:
        return find_running(folder)
    except NothingRuns:
        return None


def read_note(folder: Path) -> Running | None:
    """Read the note, whether or not its `up` still runs; `None` if there is no note."""
    path = folder / NOTE_NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=Running)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise NothingRuns(f"{path} cannot be read: {error}") from error


def is_alive(pid: int) -> bool:
    """Return whether a process with this id exists."""
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True
