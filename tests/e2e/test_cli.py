"""The `headway` command: bad input is answered with one line that names the remedy."""

import asyncio
import logging
import re
import signal
import socket

import pytest
from click.testing import CliRunner
from headway_cli.commands import COMMANDS, headway
from headway_cli.errors import explain
from headway_cli.main import main
from headway_cli.serve import settings
from headway_embedded import EmbeddedError
from headway_service_kit.settings import InvalidSettings
from msgspec import Struct

UNREACHABLE = {
    "HEADWAY_DATABASE_URL": "postgresql://127.0.0.1:1/headway",
    "HEADWAY_NATS_URL": "nats://127.0.0.1:1",
}


@pytest.fixture
def restored_log():
    """Restore the root logger, which the command configures for its own process."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("import nonesuch", r"cannot import the app 'app\.py': it needs 'nonesuch'.*line 1\)"),
        ("app = (", r"cannot import the app 'app\.py': .* was never closed \(app\.py, line 1\)"),
        ("1 / 0", r"cannot import the app 'app\.py': ZeroDivisionError: .* \(app\.py, line 1\)"),
        ("from headway import App\nApp('a.b')", r"app name 'a\.b' is not valid: use 1 to 64"),
    ],
)
async def test_an_app_that_does_not_import(shell, source, complaint):
    (shell.folder / "app.py").write_text(source)
    done = await shell.run("up", "app.py")
    assert done.code == 2
    assert len(done.complaints) == 1
    assert re.search(complaint, done.complaints[0])
    assert not (shell.folder / ".headway").exists()


@pytest.mark.parametrize("command", [["up"], ["scheduler", "--app"], ["worker", "--app"]])
async def test_all_problems_of_the_definitions_are_reported_at_once(shell, command):
    done = await shell.run(*command, "bad.py", **UNREACHABLE)
    assert done.code == 2
    expected = [
        r"job name 'dotted\.name' is not valid.*no spaces, no dots",
        r"manifest 'orphan' names the job 'nobody', which is not declared: put @app\.job",
        r"two manifests have the id 'twice': give one of them another id",
        r"manifest 'count-odd': cron expression '99 \* \* \* \*' is not valid",
        r"manifest 'misfit': its input does not fit job 'count': Expected `int`, got `str`",
        r"manifest id 'two words' is not valid",
        r"group name 'two words' is not valid",
    ]
    for complaint in expected:
        assert len([line for line in done.complaints if re.search(complaint, line)]) == 1, complaint


async def test_all_missing_settings_are_reported_at_once(shell):
    done = await shell.run("scheduler")
    assert done.code == 2
    opening = "headway: settings (environment or flags): "
    missing = [f"{opening}HEADWAY_{name}_URL is not set" for name in ("DATABASE", "NATS")]
    assert done.complaints == missing, "each on its own line"
    done = await shell.run("worker")
    assert done.complaints == [f"{opening}HEADWAY_APP is not set", missing[1]]


async def test_all_malformed_settings_are_reported_at_once(shell):
    malformed = {
        "HEADWAY_DATABASE_URL": "nonsense",
        "HEADWAY_NATS_URL": "foo://",
        "HEADWAY_HEALTH_ADDRESS": "here",
        "HEADWAY_WORKER_SLOTS": "0",
        "HEADWAY_WORKER_NAME": "a.b",
        "HEADWAY_MAX_ACTIVE": "many",
    }
    done = await shell.run("up", "good.py", **malformed)
    assert done.code == 2
    assert len(done.complaints) == len(malformed)
    for name in malformed:
        assert len([line for line in done.complaints if name in line]) == 1, name
    assert not (shell.folder / ".headway").exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ["up", "good.py", "--for", "-1"],
            r"'--for': -1\.0 is not in the range .*'headway up --help'",
        ),
        (["up", "good.py", "--for", "nan"], r"'--for': nan is not a number of seconds"),
        (["up", "good.py", "--slots", "0"], r"'--slots': 0 is not in the range"),
        (["worker", "--slots", "-3"], r"'--slots': -3 is not in the range"),
        (
            ["up", "good.py", "--worker-command", "no-such-program --fast"],
            r"'--worker-command': there is no program 'no-such-program' to run: install it",
        ),
        (["up", "good.py", "--worker-command", "'"], r"'--worker-command': .*No closing quotation"),
        (["up"], r"Missing argument 'APP'.*'headway up --help'"),
        (["down"], r"No such command 'down'; see 'headway --help'"),
    ],
)
def test_misuse_is_reported_in_one_line(arguments, complaint, capfd, restored_log):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    [line] = capfd.readouterr().err.splitlines()
    assert re.search(f"^headway: .*{complaint}", line)


async def test_a_worker_refuses_jobs_that_the_app_does_not_have(shell):
    arguments = ("worker", "--app", "good.py", "--job", "hello", "--job", "hullo")
    done = await shell.run(*arguments, **UNREACHABLE)
    assert done.code == 2
    assert "'--job': good has no body of the job 'hullo': its jobs are hello" in done.err


@pytest.mark.parametrize("arguments", [["--debug", "worker"], ["worker", "--debug"]])
async def test_debug_shows_the_traceback_as_well(shell, arguments):
    (shell.folder / "app.py").write_text("import nonesuch")
    done = await shell.run(*arguments, "--app", "app.py", **UNREACHABLE)
    assert done.code == 2
    assert "Traceback (most recent call last):" in done.err
    assert "ModuleNotFoundError: No module named 'nonesuch'" in done.err
    assert done.err.splitlines()[-1].startswith("headway: cannot import the app 'app.py': ")


def test_an_unexpected_error_is_one_line_with_its_place():
    with pytest.raises(KeyError) as caught:
        {}["two\nlines"]
    (line,) = explain(caught.value)
    assert re.match(
        r"headway: unexpected error: KeyError: .* \(test_cli\.py, line \d+\); .*--debug", line
    )


def test_the_last_lines_of_a_server_log_are_part_of_the_error():
    assert explain(EmbeddedError("NATS ended; its log ends:\n  one\n  two")) == [
        "headway: NATS ended; its log ends:",
        "  one",
        "  two",
    ]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["migrate"], r"PostgreSQL is not reachable .*HEADWAY_DATABASE_URL\): 127\.0\.0\.1:1"),
        (
            ["up", "good.py"],
            r"PostgreSQL is not reachable .*HEADWAY_DATABASE_URL\): 127\.0\.0\.1:1",
        ),
        (["provision"], r"NATS is not reachable .*HEADWAY_NATS_URL\): .*127\.0\.0\.1:1"),
    ],
)
async def test_up_migrate_and_provision_fail_if_servers_are_unreachable(
    shell, arguments, complaint
):
    done = await shell.run(*arguments, "--wait", "0", **UNREACHABLE)
    assert done.code == 2
    assert len(done.complaints) == 1
    assert re.search(complaint, done.complaints[0])
    assert not (shell.folder / ".headway").exists()


async def test_up_fails_if_nats_is_unreachable(shell, database_url):
    given = {**UNREACHABLE, "HEADWAY_DATABASE_URL": database_url}
    done = await shell.run("up", "good.py", "--wait", "0", **given)
    assert done.code == 2
    assert re.search(r"NATS is not reachable .*HEADWAY_NATS_URL\)", done.complaints[-1])


@pytest.mark.thorough
async def test_services_retry_connections_and_stop_on_a_signal(shell):
    services = [("scheduler",), ("dispatcher",), ("worker", "--app", "good.py")]
    settings = ["HEADWAY_DATABASE_URL", "HEADWAY_DATABASE_URL", "HEADWAY_NATS_URL"]
    running = [await shell.start(*service, **UNREACHABLE) for service in services]
    try:
        async with asyncio.timeout(30):
            for process, setting in zip(running, settings, strict=True):
                line = ""
                while "retrying" not in line:
                    assert process.returncode is None
                    line = (await process.stderr.readline()).decode()
                assert setting in line
        for process in running:
            process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(5):
            for process in running:
                assert await process.wait() == 130
                assert "Traceback" not in (await process.stderr.read()).decode()
    finally:
        for process in running:
            if process.returncode is None:
                process.kill()


@pytest.mark.parametrize("command", [["scheduler"], ["worker", "--app", "good.py"]])
async def test_a_port_in_use(shell, database_url, nats_url, command):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        given = {"HEADWAY_DATABASE_URL": database_url, "HEADWAY_NATS_URL": nats_url}
        done = await shell.run(*command, HEADWAY_HEALTH_ADDRESS=address, **given)
    assert done.code == 2
    assert len(done.complaints) == 1
    assert re.search(rf"{address}: .*in use; .*HEADWAY_HEALTH_ADDRESS", done.complaints[0])


@pytest.mark.long
async def test_a_schema_newer_than_the_code(shell, database, database_url, nats_url):
    async with database.acquire() as connection:
        for schema in ("scheduler", "dispatcher"):
            await connection.execute(
                f"INSERT INTO {schema}.migration (number, title, checksum) VALUES (9999, 'x', 'x')"
            )
    given = {"HEADWAY_DATABASE_URL": database_url, "HEADWAY_NATS_URL": nats_url}
    for command in (["migrate"], ["scheduler"], ["dispatcher"], ["up", "good.py"]):
        done = await shell.run(*command, **given)
        assert done.code == 2
        assert len(done.complaints) == 1
        assert re.search(
            r"is at version 9999, newer .* install a newer Headway", done.complaints[0]
        )


async def test_migrate_and_provision_are_idempotent(shell, postgres, nats_url):
    empty = await postgres.new_database(template="template0")
    given = {"HEADWAY_DATABASE_URL": empty, "HEADWAY_NATS_URL": nats_url}
    try:
        done = await shell.run("scheduler", **given)
        assert done.code == 2
        assert re.search(r"'scheduler' lacks .*: run 'headway migrate'", done.complaints[0])
        assert "applied scheduler 0001" in (await shell.run("migrate", **given)).out
        assert (await shell.run("migrate", **given)).out == "the schemas are up to date\n"
        refused = await shell.run("provision", "--replicas", "3", **given)
        assert refused.code == 2
        assert re.search(r"NATS refuses .*HEADWAY_STREAM_REPLICAS", refused.complaints[0])
        small = {"HEADWAY_STREAM_MAX_BYTES": str(64 * 1024**2)}
        assert "made HEADWAY_WORK" in (await shell.run("provision", **small, **given)).out
        again = await shell.run("provision", **small, **given)
        assert (again.code, again.out, again.err) == (0, "everything is in place\n", "")
    finally:
        await postgres.drop(empty)


async def test_a_data_folder_that_cannot_be_used(shell):
    done = await shell.run("up", "good.py", "--data", "good.py/data")
    assert done.code == 2
    assert re.search(r"data folder .*/good\.py/data cannot be used .*--data", done.err)


class Shapes(Struct, frozen=True, kw_only=True):
    database_url: str | None = None
    nats_url: str | None = None
    health_address: str | None = None
    nats_creds: str | None = None


@pytest.mark.parametrize(
    "given",
    [
        {"database_url": "postgresql://"},
        {"database_url": "postgres://user:p%40ss@db:5432/headway?sslmode=require"},
        {"database_url": "postgresql://user@one:5432,two:5433/headway"},
        {"database_url": "postgresql:///headway?host=/var/run/postgresql"},
        {"database_url": "postgresql://[::1]:5432/headway"},
        {"nats_url": "nats://127.0.0.1:4222"},
        {"nats_url": "tls://user:secret@nats.example.org"},
        {"nats_url": "localhost:4222"},
        {"nats_url": "nats://one:4222, nats://two:4222"},
        {"health_address": "0.0.0.0:8080"},
        {"health_address": ":0"},
    ],
)
def test_valid_settings_are_accepted(given):
    assert settings.read(Shapes, given, {}) == Shapes(**given)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("database_url", "nonsense"),
        ("database_url", "mysql://user:secret@db/headway"),
        ("database_url", "postgresql://user:secret@db:port/headway"),
        ("nats_url", "foo://"),
        ("nats_url", "nats://"),
        ("nats_url", "nats://one,"),
        ("nats_url", "nats://user:secret@host:port"),
        ("nats_url", "http://host:4222"),
        ("health_address", "localhost"),
        ("health_address", "localhost:http"),
        ("health_address", "localhost:65536"),
        ("nats_creds", "/no/such/file"),
    ],
)
def test_invalid_settings_are_refused_without_showing_secrets(name, value):
    with pytest.raises(InvalidSettings, match=f"^HEADWAY_{name.upper()}: ") as caught:
        settings.read(Shapes, {}, {f"HEADWAY_{name.upper()}": value})
    assert "secret" not in str(caught.value)


async def test_the_module_is_the_command(shell):
    done = await shell.run("--help")
    assert (done.code, done.err) == (0, "")
    listed = re.findall(r"^  ([a-z][a-z-]+) +[A-Z]", done.out, re.MULTILINE)
    assert listed == [
        *("up", "run", "scheduler", "dispatcher", "console", "worker"),
        *(
            "init",
            "migrate",
            "provision",
            "token",
            "sign-in",
            "settings",
            "doctor",
            "notify",
            "completion",
        ),
        *(
            "top",
            "manifests",
            "manifest",
            "pauses",
            "groups",
            "apps",
            "jobs",
            "work",
            "runs",
            "logs",
            "failing",
            "workers",
            "events",
        ),
        *("audit", "preview", "explain"),
        *("trigger", "cancel", "dead-letters", "pause", "resume", "enable", "disable", "change"),
        *("group", "job", "delete", "enqueue", "enqueued", "dismiss"),
        *("plan", "apply", "schedule"),
        *("verify", "history", "rebuild", "bench"),
    ]


@pytest.mark.parametrize("name", headway.list_commands(None))
def test_every_command_and_every_option_is_explained(name):
    command = headway.get_command(None, name)
    assert len(command.get_short_help_str(limit=200)) < 60
    assert COMMANDS[name][1] == command.get_short_help_str(limit=200)
    for parameter in command.params:
        assert parameter.param_type_name == "argument" or parameter.help
    shown = CliRunner().invoke(headway, [name, "--help"])
    assert shown.exit_code == 0
    assert shown.output.startswith(f"Usage: headway {name} [OPTIONS]")


async def test_commands_name_the_missing_console(shell):
    done = await shell.run("manifests")
    assert done.code == 2
    assert done.complaints == [
        "headway: HEADWAY_URL is not set, and no 'headway up' runs in ./.headway: start it first"
    ]
    done = await shell.run("groups", HEADWAY_URL="http://127.0.0.1:1")
    assert done.code == 2
    assert re.search(r"Headway at http://127\.0\.0\.1:1 does not answer", done.complaints[0])


async def test_an_up_is_found_by_its_data_folder(shell):
    up = await shell.start("up", "good.py", "--data", "here")
    try:
        async with asyncio.timeout(60):
            while not (shell.folder / "here" / "running.json").exists():
                assert up.returncode is None
                await asyncio.sleep(0.05)
        done = await shell.run("manifests", "--data", "here")
        assert (done.code, done.out.count("hello-every")) == (0, 1), done.err
    finally:
        up.send_signal(signal.SIGTERM)
        await up.communicate()
    assert not (shell.folder / "here" / "running.json").exists()
    done = await shell.run("manifests", "--data", "here")
    assert "no 'headway up' runs in ./here" in done.complaints[0]
