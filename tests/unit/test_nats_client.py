"""Our NATS client overrides private methods of nats-py, so its version and source are pinned.

If this fails, nats-py has changed. Compare the named methods of `nats.aio.client.Client` with
`headway_jetstream_kit/client.py`, which documents what each override relies on; run
`tests/contract/test_client_traps.py`, which shows each defect that we work around; then write the
new version and digests here and into `pyproject.toml`.
"""

import hashlib
import importlib.metadata
import inspect
import re
from pathlib import Path

import pytest
from headway_jetstream_kit.client import SturdyClient
from nats.aio.client import Client

ROOT = Path(__file__).parents[2]
KIT = ROOT / "libs" / "jetstream_kit"
# Methods that we override or call, with a digest of their reviewed source.
READ = {
    "_build_message": "13cbe7b7f8cbe0fb",
    "_parse_header_lines": "049cf69148e0bb4f",
    "_process_headers": "fe656f61147df989",
    "_process_pong": "ee4c4d01a16de074",
    "_connect_to_server": "1356d992325fde9f",
    "_process_connect_init": "e1ed2da075c82ab0",
    "_attempt_reconnect": "2bbc96e0f2f765ec",
    "_send_ping": "d57b2f820443afb4",
}
# Attributes that we read or set.
ATTRIBUTES = {
    *("_status", "_ps", "_transport", "_reading_task", "_reconnection_task"),
    *("_pongs", "_pongs_received", "_pings_outstanding", "_resp_map"),
}


def print_of(method: str) -> str:
    source = inspect.getsource(getattr(Client, method))
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def test_the_installed_version_is_the_pinned_one():
    [pinned] = re.findall(r'"nats-py\[nkeys\]==([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert importlib.metadata.version("nats-py") == pinned


@pytest.mark.parametrize("method", READ)
def test_a_private_method_is_as_we_have_read_it(method):
    assert print_of(method) == READ[method], f"read Client.{method} again, as told above"


def test_the_private_attributes_are_there():
    assert set(vars(Client())) >= ATTRIBUTES


def test_everything_that_we_reach_into_is_listed():
    """Find the methods and attributes that client.py overrides or uses."""
    replaced = {name for name in vars(SturdyClient) if name in dir(Client)}
    code = (KIT / "headway_jetstream_kit" / "client.py").read_text()
    touched = {name for name in re.findall(r"\.(_[a-z]\w+)", code) if hasattr(Client, name)}
    own = {"__init__", "__module__", "__doc__"}
    assert {name for name in replaced | touched if not name.startswith("__")} - own <= set(READ)
    attributes = set(re.findall(r"self\.(_[a-z]\w+)", code)) - set(dir(SturdyClient))
    assert attributes <= ATTRIBUTES
