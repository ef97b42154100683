"""Libraries that a process loads at its start: one that it does not need would delay it."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "unneeded"),
    [
        ("headway.worker", ["httpx"]),
        ("headway_cli.serve.worker", ["httpx", "opentelemetry.sdk", "asyncpg", "rich"]),
        # The services are loaded while the servers start.
        ("headway_cli.up.up", ["litestar", "headway_scheduler.wiring", "opentelemetry.sdk"]),
        ("headway_cli.errors", ["headway_console", "headway_dispatcher", "nats"]),
    ],
)
def test_a_start_loads_no_library_that_it_does_not_need(module, unneeded):
    program = f"import sys, {module}; print([name for name in {unneeded} if name in sys.modules])"
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


def test_the_client_is_a_name_of_the_package_all_the_same():
    import headway
    from headway.client.client import Client

    assert headway.Client is Client
    with pytest.raises(AttributeError, match="module 'headway' has no attribute 'Clinet'"):
        getattr(headway, "Clinet")  # noqa: B009 - an unknown name is an error of types too
