"""Image and compose file: well-formed, and about settings, commands and flags that exist."""

import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest
from headway_cli.commands import headway
from headway_cli.services import MigrateSettings, WorkerProgramSettings
from headway_console.settings import ConsoleSettings
from headway_dispatcher.settings import DispatcherSettings
from headway_scheduler.settings import SchedulerSettings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILE = DEPLOY / "docker" / "Dockerfile"
SETTINGS = {
    f"HEADWAY_{field.upper()}"
    for struct in (
        *(SchedulerSettings, DispatcherSettings, ConsoleSettings),
        *(WorkerProgramSettings, MigrateSettings),
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


def test_the_compose_file_names_what_exists(compose):
    started = 0
    for name, service in compose["services"].items():
        for variable in service.get("environment", {}):
            assert known(variable) or variable.startswith("POSTGRES_"), f"{name}: {variable}"
        if service["image"] == "headway":
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
    maps = {one["metadata"]["name"]: one["data"] for one in rendered if one["kind"] == "ConfigMap"}
    started = []
    for document in rendered:
        spec = document.get("spec", {}).get("template", {}).get("spec", {})
        for one in [*spec.get("initContainers", []), *spec.get("containers", [])]:
            if not one["image"].startswith("headway"):
                continue
            variables = [variable["name"] for variable in one.get("env", [])]
            for source in one.get("envFrom", []):
                variables += maps[source["configMapRef"]["name"]]
            assert [variable for variable in variables if not known(variable)] == []
            if one["image"].startswith("headway:"):
                parses(one["args"])
                started.append(one["args"][0])
    assert sorted(started) == [
        *("console", "dispatcher", "migrate", "migrate", "migrate", "migrate", "provision"),
        *("scheduler", "worker"),
    ]


def test_the_dockerfile_is_clean():
    program = shutil.which("hadolint")
    assert program, "hadolint comes with the development packages: run uv sync"
    done = subprocess.run([program, DOCKERFILE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_image_gets_all_that_it_copies():
    """What the build copies from the project is there, and let through by .dockerignore."""
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
