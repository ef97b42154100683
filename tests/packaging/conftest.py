"""The wheels, and environments outside of the checkout into which they are installed."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.up import CLEAN

ROOT = Path(__file__).parents[2]
UV = os.environ.get("UV", "uv")
# Without anything that leads back to the checkout.
OUTSIDE = {
    name: value
    for name, value in CLEAN.items()
    if name not in ("PYTHONPATH", "VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT")
}


def call(*words: str | Path, folder: Path = ROOT, code: int = 0, **environment: str) -> str:
    """Run a program that must end with a code; returns its output, or its message of an error."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env={**OUTSIDE, **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == code, f"{words}\n{done.stdout}{done.stderr}"
    return done.stderr if code else done.stdout


@dataclass
class Environment:
    """An environment with a folder of its own, and nothing but what was installed."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "environment" / "bin" / "python"

    @property
    def headway(self) -> Path:
        return self.python.with_name("headway")


@pytest.fixture
def outside() -> Iterator[Path]:
    """An empty folder outside of the checkout.

    Not under pytest's own folder: another session that starts closes that for all accounts but
    ours, and as root the installed PostgreSQL runs under one of its own.
    """
    with tempfile.TemporaryDirectory(prefix="headway-test-") as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def wheels(tmp_path_factory) -> Path:
    """The wheels of all distributions."""
    folder = tmp_path_factory.mktemp("wheels")
    call(UV, "build", "--quiet", "--wheel", "--all-packages", "--out-dir", folder)
    return folder


def install(wheels: Path, folder: Path, extra: str, installer: str) -> Environment:
    """Install the wheels that `headway` with an extra needs, as a user of PyPI gets them."""
    made = Environment(folder)
    [headway] = wheels.glob("headway-*.whl")
    wanted = [f"{headway}{extra}", *(wheels.glob("headway_server-*.whl") if extra else ())]
    if installer == "pip":
        call(sys.executable, "-m", "venv", folder / "environment")
        call(made.python, "-m", "pip", "install", "--quiet", *wanted, folder=folder)
        return made
    # The locked versions are in uv's cache.
    locked = folder / "locked.txt"
    export = ("--frozen", "--no-hashes", "--no-emit-workspace", "--no-dev", "--all-extras")
    call(UV, "export", "--quiet", "--all-packages", *export, "--output-file", locked)
    call(UV, "venv", "--quiet", "--python", sys.executable, folder / "environment")
    options = ("--quiet", "--link-mode=copy", "--python", made.python, "--constraint", locked)
    call(UV, "pip", "install", *options, *wanted, folder=folder)
    return made
