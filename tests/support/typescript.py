"""The TypeScript worker, built once for all tests that run it."""

import fcntl
import shutil
import subprocess
from pathlib import Path

HEARD = "SELECT count(*) FROM dispatcher.worker WHERE sdk = 'headway-typescript'"
PACKAGE = Path(__file__).parents[2] / "libs" / "worker-typescript"
DEMO = Path(__file__).parents[2] / "examples" / "demo"
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
        done = subprocess.run([PACKAGE / "build"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"build:\n{done.stdout}{done.stderr}")


async def start(world, processes, **environment: str):
    """A dispatcher and a worker in TypeScript that it has heard of."""
    await world.dispatcher()
    program = await processes.node(str(WORKER_UNDER_TEST), **environment)
    await world.until(HEARD)
    return program
