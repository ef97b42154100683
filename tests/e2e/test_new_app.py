"""A new app: `headway init` writes it, and `headway run` runs a job of it in the foreground."""

import asyncio
import json
import re
import subprocess

import pytest
import yaml
from headway_dispatcher.provisioning import provision_by
from headway_embedded import free_port
from headway_embedded.binaries import nats_program
from headway_jetstream_kit import Broker, BrokerUnavailable
from support.world import STREAMS

FILES = {"app.py", "compose.yaml", ".env", ".gitignore"}
JOBS = """
import logging
from headway import App, Fatal
app = App("jobs")

@app.job("double")
def double(ctx, number: int):
    ctx.log.info("doubling", number=number)
    ctx.progress(50, "half")
    ctx.activate("after", number)
    return number * 2

@app.job("wait")
async def wait(ctx):
    await ctx.activate_many([("after", 1), ("after", 2)])

@app.job("fail")
async def fail(ctx):
    raise Fatal("no money left")

@app.job("leave")
def leave(ctx):
    raise SystemExit(3)

@app.job("unsaid")
def unsaid(ctx):
    return object()
"""


async def test_init_writes_an_app_and_never_changes_a_file(shell):
    done = await shell.run("init", "jobs")
    assert done.code == 0, done.err
    made = shell.folder / "jobs"
    texts = {path.name: path.read_text() for path in made.iterdir()}
    assert set(texts) == FILES
    assert 'App("jobs")' in texts["app.py"]
    secrets = set(re.findall(r"PASSWORD=(\w+)", texts[".env"]))
    assert len(secrets) == 2
    assert all(len(secret) == 32 for secret in secrets)
    assert (made / ".env").stat().st_mode & 0o777 == 0o600
    assert {".env", ".headway/"} <= set(texts[".gitignore"].splitlines())
    checked = await asyncio.to_thread(
        subprocess.run,
        ["check-jsonschema", "--builtin-schema", "vendor.compose-spec", made / "compose.yaml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout
    (made / "app.py").write_text("mine")
    (made / ".env").unlink()
    done = await shell.run("init", "jobs")
    assert done.code == 2
    assert "already has app.py, compose.yaml, .gitignore; nothing was changed" in done.err
    assert (made / "app.py").read_text() == "mine"
    assert not (made / ".env").exists()


@pytest.mark.thorough
async def test_the_addresses_of_a_new_app_reach_the_server_of_its_compose_file(shell, processes):
    assert (await shell.run("init", "jobs")).code == 0
    made = shell.folder / "jobs"
    lines = [line.partition("=") for line in (made / ".env").read_text().splitlines()]
    env = {name: value for name, equals, value in lines if equals}
    service = yaml.safe_load((made / "compose.yaml").read_text())["services"]["nats"]
    assert service["ports"] == ["127.0.0.1:4222:4222"]
    words = [
        re.sub(r"\$\{(\w+):\?[^}]*\}", lambda name: env[name[1]], word)
        for word in service["command"]
    ]
    words = [word.replace("/data", str(made / "data")) for word in words if "http" not in word]
    port = str(free_port())
    await processes.start(str(nats_program()), *words, "--addr=127.0.0.1", f"--port={port}")
    url = env["HEADWAY_NATS_URL"].replace("4222", port)
    broker = await Broker.connect(url, name="test", timeout=10)
    await provision_by(broker, STREAMS)
    await broker.close()
    with pytest.raises(BrokerUnavailable):
        await Broker.connect(url.replace(env["NATS_PASSWORD"], "guessed"), name="test", timeout=1)


async def test_init_takes_a_folder_whose_name_is_no_app_name(shell):
    assert (await shell.run("init", "my jobs")).code == 0
    assert 'App("hello")' in (shell.folder / "my jobs" / "app.py").read_text()


async def test_a_job_runs_in_the_foreground(shell):
    (shell.folder / "app.py").write_text(JOBS)
    done = await shell.run("run", "double", "--input", "21")
    assert (done.code, done.out) == (0, "42\n"), done.err
    for words in ("doubling number=21", "percent", "not activated", "double completed after"):
        assert words in done.err
    done = await shell.run("run", "wait", "--json", HEADWAY_APP="app.py")
    assert json.loads(done.out) == {"outcome": "completed", "output": None, "failure": None}


@pytest.mark.parametrize(
    ("job", "kind", "message"),
    [
        ("fail", "Fatal", "no money left"),
        ("leave", "SystemExit", "3"),
        ("unsaid", "output_not_json", "the output holds a value of type object, which is not JSON"),
    ],
)
async def test_a_failure_is_the_exit_code(shell, job, kind, message):
    (shell.folder / "app.py").write_text(JOBS)
    done = await shell.run("run", job)
    assert (done.code, done.out) == (1, "")
    assert re.search(rf"headway: {job} failed after [\d.]+ s: {kind}: {message}\n", done.err)
    done = await shell.run("run", job, "--json")
    failure = json.loads(done.out)["failure"]
    assert (done.code, failure["kind"], failure["message"]) == (1, kind, message)
    assert failure["stack"].count("File ") == (job != "unsaid"), "only the frame of the body"
    assert not (shell.folder / ".headway").exists()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("double",), "job 'double' does not accept it: Expected `int`, got `null`"),
        (("double", "--input", "x"), "'x' is not JSON"),
        (("wait", "--input", "1"), "job 'wait' takes no input"),
        (("nope",), "jobs has no body of the job 'nope': its jobs are double, wait, fail"),
        (("double", "--app", "other.py"), "there is no file 'other.py'"),
    ],
)
async def test_what_cannot_run_is_named(shell, arguments, problem):
    (shell.folder / "app.py").write_text(JOBS)
    done = await shell.run("run", *arguments)
    assert (done.code, done.out) == (2, "")
    assert problem in done.err


async def test_a_cadence_without_a_job_is_named(shell):
    lines = (
        "from headway import App, daily",
        'app = App("a")',
        '@daily("06:00")',
        "def forgot(ctx): ...",
    )
    (shell.folder / "app.py").write_text("\n".join(lines))
    done = await shell.run("plan", "app.py")
    assert (done.code, done.out) == (2, "")
    assert "has a cadence and is no job, so it would never run: put @app.job('forgot')" in done.err


async def test_an_interrupted_run_says_so(shell):
    stop = "import signal\n@app.job('stop')\ndef stop(ctx): signal.raise_signal(signal.SIGINT)\n"
    (shell.folder / "app.py").write_text(JOBS + stop)
    done = await shell.run("run", "stop")
    assert (done.code, done.out) == (130, "")
    assert done.err.startswith("headway: stop interrupted after ")
