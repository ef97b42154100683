"""The wheels are complete: metadata, types, commands, and an app that runs outside of the checkout."""

import asyncio
import json
import re
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from headway_cli.serve.find_app import load_app

from generators.versions import read_version

from .conftest import OUTSIDE, ROOT, UV, call, install

DISTRIBUTIONS = {"headway", "headway-server", "headway-testing"}
# Commands that serve, or that read the database or the data folder of an `up`.
NEED_THE_SERVER = {
    *("up", "scheduler", "dispatcher", "console", "migrate", "provision", "token", "sign-in"),
    *("settings", "doctor", "notify", "top", "verify", "history", "rebuild", "bench"),
}
MANUAL_APP = """
from headway import App, manual
app = App("hello")
@app.job("hello")
async def hello(ctx): ...
app.schedule("hello", job=hello, when=manual())
"""
LOAD_EACH = """
import json, sys
from headway_cli.commands import COMMANDS, ServerMissing, headway
missing = []
for name in COMMANDS:
    try:
        headway.get_command(None, name)
    except ServerMissing as error:
        assert str(error).endswith("pip install 'headway[server]'"), error
        missing.append(name)
print(json.dumps(missing))
"""


def read_file(wheel: Path, end: str) -> str:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(end)]
        return archive.read(name).decode()


def test_metadata_is_complete_and_siblings_have_the_same_version(wheels):
    found, version = set(), read_version(ROOT)
    for wheel in wheels.glob("*.whl"):
        metadata = Parser().parsestr(read_file(wheel, ".dist-info/METADATA"))
        found.add(metadata["Name"])
        assert metadata["Version"] == version
        assert metadata["License-Expression"] == "Apache-2.0"
        assert read_file(wheel, ".dist-info/licenses/LICENSE") == (ROOT / "LICENSE").read_text()
        assert metadata["Author"]
        assert metadata["Requires-Python"] == ">=3.11"
        assert metadata["Description-Content-Type"] == "text/markdown"
        assert len(metadata.get_payload()) > 200, "a readme"
        assert "Typing :: Typed" in metadata.get_all("Classifier")
        siblings = [text for text in metadata.get_all("Requires-Dist") if "headway" in text]
        assert siblings
        for requirement in siblings:
            assert re.match(rf"headway(-\w+)?(\[\w+\])?=={re.escape(version)}(;|$)", requirement)
    assert found == DISTRIBUTIONS


def test_each_package_has_its_types_and_is_in_one_wheel(wheels):
    homes: dict[str, str] = {}
    for wheel in wheels.glob("*.whl"):
        names = set(zipfile.ZipFile(wheel).namelist())
        packages = {name.partition("/")[0] for name in names if name.endswith("/__init__.py")}
        for package in packages:
            assert f"{package}/py.typed" in names
            assert homes.setdefault(package, wheel.name) == wheel.name
    sources = {path.parent.name for path in ROOT.glob("*/*/headway*/py.typed")}
    sources |= {path.parent.name for path in ROOT.glob("proto-schemas/headway*/py.typed")}
    assert set(homes) == sources


@pytest.mark.thorough
@pytest.mark.parametrize("installer", ["uv", pytest.param("pip", marks=pytest.mark.long)])
def test_up_runs_an_app_outside_of_the_checkout(wheels, outside, installer):
    made = install(wheels, outside, "[server]", installer)
    where = call(made.python, "-c", "import headway; print(headway.__file__)", folder=outside)
    assert where.startswith(str(outside))
    call(made.headway, "init", "jobs", folder=outside)
    folder = outside / "jobs"
    assert call(made.headway, "run", "report", folder=folder) == '{"greeting":"hello world"}\n'
    out = call(made.headway, "up", "app.py", "--for", "3", "--json", folder=folder)
    report = json.loads(out.splitlines()[-1])
    assert report["runs_completed"] >= 1
    assert report["runs_failed"] == report["dead_letters"] == 0


@pytest.mark.long
@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_a_project_uses_a_checkout(outside, installer):
    if installer == "uv":
        call(UV, "init", "--quiet", "--bare", "--python", sys.executable, folder=outside)
        call(UV, "add", "--quiet", "--editable", f"{ROOT}[server]", folder=outside)
    else:
        call(sys.executable, "-m", "venv", ".venv", folder=outside)
        folders = (f"{ROOT}[server]", ROOT / "services")
        call(".venv/bin/pip", "install", "--quiet", *folders, folder=outside)
    headway = outside / ".venv" / "bin" / "headway"
    assert "Run everything for APP" in call(headway, "up", "--help", folder=outside)


@pytest.mark.thorough
async def test_without_the_server_there_are_library_worker_and_client(
    wheels, outside, world, console
):
    made = install(wheels, outside, "", "uv")
    needing = json.loads(call(made.python, "-c", LOAD_EACH, folder=outside))
    assert set(needing) == NEED_THE_SERVER
    app = outside / "app.py"
    app.write_text(MANUAL_APP)
    refusal = call(made.headway, "up", app, folder=outside, code=2)
    assert refusal == "headway: headway up needs the server: pip install 'headway[server]'\n"
    await world.dispatcher()
    await world.scheduler(load_app(str(app)))
    worker = await asyncio.create_subprocess_exec(
        *(made.headway, "worker", "--app", app),
        cwd=outside,
        env={**OUTSIDE, "HEADWAY_NATS_URL": world.nats_url},
    )
    try:
        words = (made.headway, "trigger", "hello", "--wait")
        address = console.environment("operator")
        out = await asyncio.to_thread(call, *words, folder=outside, **address)
    finally:
        worker.terminate()
        await worker.wait()
    assert "completed" in out
