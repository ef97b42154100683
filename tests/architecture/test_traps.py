"""Calls that lead into known traps are forbidden; docs/reliability.md explains each trap."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = [
    path
    for folder in ("libs", "services")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".py", ".sql") and ".venv" not in path.parts and "embedded" not in path.parts
]
# A pattern, and the only files that may hold it.
FORBIDDEN = {
    # The client's own fetch swallows messages and takes a deleted consumer for an idle one.
    r"\.jetstream\(|pull_subscribe|ordered_consumer": (),
    # A drain raises while reconnecting, and may wait for half a minute.
    r"client\.drain\(": (),
    # A lock of a session outlives its transaction, and on a pooled connection its holder.
    r"pg_(try_)?advisory_lock(_shared)?\(": (),
    # Every connection has limits for statements, locks, idle transactions and dead peers; the probe
    # for poolers asks one question, with a timeout.
    r"asyncpg\.connect\(|create_pool\(": ("database.py", "poolers.py"),
    r"pool\.acquire\(\s*\)": (),
    # Every connection to NATS is watched.
    r"nats\.connect\(": ("client.py",),
    # A bare negative acknowledgement comes again at once, and again, and again.
    r"b\"-NAK\"": (),
}


def offenders(pattern: str, allowed: tuple[str, ...]) -> list[str]:
    found = re.compile(pattern)
    return [
        str(path.relative_to(ROOT))
        for path in SOURCES
        if path.name not in allowed and found.search(path.read_text(encoding="utf-8"))
    ]


@pytest.mark.parametrize("pattern", FORBIDDEN)
def test_nobody_takes_this_way(pattern):
    assert offenders(pattern, FORBIDDEN[pattern]) == []


def test_the_check_itself_bites():
    assert len(SOURCES) > 100
    assert offenders(r"create_pool\(", ()) != []
    assert re.search(next(iter(FORBIDDEN)), "await client.jetstream().publish()")
    assert re.search(r"pg_(try_)?advisory_lock(_shared)?\(", "SELECT pg_advisory_lock($1)")
    assert not re.search(r"pg_(try_)?advisory_lock(_shared)?\(", "pg_advisory_xact_lock($1)")
