"""A note of the `up` that runs on a data folder, so that other commands find it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

# Files of the data folder that hold secrets: the note, and what lets this person in.
NOTE_NAME = "running.json"
LOCAL_NAME = "local.json"


class NothingRuns(Exception):
    """There is nobody to ask: nothing was named, and nothing runs here."""


class Running(Struct, frozen=True, kw_only=True):
    """Where an `up` and its servers are found, how to come in, and which process it is."""

    nats_url: str
    pid: int
    database_url: str | None = None
    url: str = ""
    token: str = ""
    ticket_key: str = ""


@contextmanager
def noted(
    folder: Path,
    *,
    nats_url: str,
    database_url: str,
    url: str = "",
    token: str = "",
    ticket_key: str = "",
) -> Iterator[None]:
    """Leave the note as long as `up` runs; for our eyes only, since it holds secrets."""
    path = folder / NOTE_NAME
    running = Running(
        nats_url=nats_url,
        pid=os.getpid(),
        database_url=database_url,
        url=url,
        token=token,
        ticket_key=ticket_key,
    )
    write_secret(path, msgspec.json.encode(running))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def write_secret(path: Path, content: bytes) -> None:
    """Write a file that nobody else can read, not even for a moment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(content)


def find_running(folder: Path) -> Running:
    """The `up` that runs on a data folder; raises if there is none."""
    shown = folder if folder.is_absolute() else f"./{folder}"
    running = read_note(folder)
    if running is None:
        raise NothingRuns(f"HEADWAY_URL is not set, and no 'headway up' runs in {shown}")
    if not is_alive(running.pid):
        raise NothingRuns(
            f"HEADWAY_URL is not set, and the 'headway up' that ran in {shown} has ended "
            f"without a clean stop (process {running.pid} is gone): start it again"
        )
    if not running.url:
        raise NothingRuns(
            f"the 'headway up' that runs in {shown} is of an older version: start it again"
        )
    return running


def find_database(folder: Path) -> str | None:
    """The URL of PostgreSQL of the `up` that runs on a data folder, if one does."""
    running = read_note(folder)
    return running.database_url if running is not None and is_alive(running.pid) else None


def read_note(folder: Path) -> Running | None:
    """The note, whether or not its `up` still runs; none if there is none."""
    path = folder / NOTE_NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=Running)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise NothingRuns(f"{path} cannot be read: {error}") from error


def is_alive(pid: int) -> bool:
    """Whether there is a process of that number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
