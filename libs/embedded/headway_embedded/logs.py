"""Logs of the servers: one file a run, and the run before it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TAIL_LINES = 12
TAIL_BYTES = 8192


@contextmanager
def fresh_log(path: Path) -> Iterator[int]:
    """A descriptor of an empty log; what was in it is kept once, as `.1`."""
    path.parent.mkdir(exist_ok=True)
    if path.exists():
        path.replace(path.with_name(f"{path.name}.1"))
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def last_lines(path: Path) -> str:
    """The end of a log, indented for a message."""
    with path.open("rb") as log:
        log.seek(max(0, path.stat().st_size - TAIL_BYTES))
        lines = log.read().decode(errors="replace").splitlines()[-TAIL_LINES:]
    return "\n".join(f"  {line}" for line in lines) or "  (nothing)"
