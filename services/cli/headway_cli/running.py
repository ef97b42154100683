"""A note of the `up` that runs on a data folder, so that other commands find its servers."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

_NAME = "running.json"


class NothingRuns(Exception):
    """There is no server to ask: none was named, and none runs here."""


class Running(Struct, frozen=True, kw_only=True):
    """Where the NATS of an `up` is found, and which process that `up` is."""

    nats_url: str
    pid: int


@contextmanager
def noted(folder: Path, nats_url: str) -> Iterator[None]:
    """Leave the note as long as `up` runs."""
    path = folder / _NAME
    running = Running(nats_url=nats_url, pid=os.getpid())
    path.write_bytes(msgspec.json.encode(running))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def find_running(folder: Path) -> str:
    """The URL of NATS of the `up` that runs on a data folder; raises if there is none."""
    path = folder / _NAME
    shown = folder if folder.is_absolute() else f"./{folder}"
    try:
        running = msgspec.json.decode(path.read_bytes(), type=Running)
    except FileNotFoundError as error:
        raise NothingRuns(
            f"HEADWAY_NATS_URL is not set, and no 'headway up' runs in {shown}"
        ) from error
    except (OSError, msgspec.DecodeError) as error:
        raise NothingRuns(f"{path} cannot be read: {error}") from error
    if not _is_alive(running.pid):
        raise NothingRuns(
            f"HEADWAY_NATS_URL is not set, and the 'headway up' that ran in {shown} has ended "
            f"without a clean stop (process {running.pid} is gone): start it again"
        )
    return running.nats_url


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
