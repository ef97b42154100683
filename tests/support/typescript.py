"""The TypeScript worker, built once for all tests that run it."""

import fcntl
import shutil
import subprocess
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "libs" / "worker-typescript"
WORKER_UNDER_TEST = PACKAGE / "dist" / "test" / "worker_under_test.js"


def missing() -> str | None:
    """Why the TypeScript worker cannot run here, or none."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            return f"there is no {program} on this machine"
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True)
    major = int(version.stdout.strip().lstrip("v").partition(".")[0])
    return None if major >= 20 else f"Node {version.stdout.strip()} is older than 20"


def build() -> None:
    """Install its packages and compile it, where another process has not done so just now."""
    with (PACKAGE / ".build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (PACKAGE / "node_modules" / ".package-lock.json").exists():
            _run("npm", "ci", "--no-audit", "--no-fund")
        if not _is_built():
            _run("npm", "run", "--silent", "build")


def _is_built() -> bool:
    if not WORKER_UNDER_TEST.exists():
        return False
    built_at = WORKER_UNDER_TEST.stat().st_mtime
    sources = [
        *(one for folder in ("src", "test", "example") for one in PACKAGE.glob(f"{folder}/*.ts")),
        PACKAGE / "package-lock.json",
        PACKAGE / "tsconfig.json",
    ]
    return all(one.stat().st_mtime <= built_at for one in sources)


def _run(*command: str) -> None:
    done = subprocess.run(command, cwd=PACKAGE, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")
