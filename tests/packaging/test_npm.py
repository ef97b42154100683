"""The npm package has all it needs: a worker in TypeScript is compiled and runs outside of the checkout."""

import asyncio
import json
import shutil
from typing import Any

import pytest
from support import typescript
from support.typescript import HEARD, PACKAGE
from support.work_events import WorkPublisher

from .conftest import OUTSIDE, call

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(
        typescript.missing() is not None, reason=f"TypeScript: {typescript.missing()}"
    ),
]
SETTLED = "SELECT outcome FROM dispatcher.work_queue WHERE id = $1 AND state = 'settled'"
NPM = ("npm", "--prefer-offline", "--no-audit", "--no-fund")
COMPILE = ("--strict", "--skipLibCheck", "--types", "node", "--outDir", "dist")


async def test_an_example_is_compiled_and_runs_outside_of_the_checkout(outside, world):
    typescript.build()
    (outside / "package.json").write_text('{"private": true, "type": "module"}')
    # Without the script that compiles: other tests run what is compiled.
    pack = ("pack", "--json", "--ignore-scripts", "--pack-destination", outside)
    packed = json.loads(call(*NPM, *pack, folder=PACKAGE))
    check_contents(packed[0])
    # The compiler and the types of Node, as a project of a user has them.
    described = json.loads((PACKAGE / "package.json").read_text())["devDependencies"]
    wanted = [f"{name}@{version}" for name, version in described.items()]
    call(*NPM, "install", outside / packed[0]["filename"], *wanted, folder=outside)
    shutil.copy(PACKAGE / "example" / "demo_worker.ts", outside)
    module = ("--module", "nodenext", "--target", "es2023")
    call("npx", "tsc", *COMPILE, *module, "demo_worker.ts", folder=outside)
    await world.dispatcher()
    worker = await asyncio.create_subprocess_exec(
        *("node", "dist/demo_worker.js"),
        cwd=outside,
        env={**OUTSIDE, "HEADWAY_NATS_URL": world.nats_url},
    )
    try:
        await world.until(HEARD)
        work = await WorkPublisher(world.broker).queue("greet-typescript")
        assert await world.until(SETTLED, work) == "completed"
    finally:
        worker.terminate()
        await worker.wait()


def check_contents(packed: dict[str, Any]) -> None:
    """Check that the package has what users need, and no tests."""
    paths = {file["path"] for file in packed["files"]}
    assert {"LICENSE", "README.md", "package.json", "dist/src/index.d.ts"} <= paths
    assert all(path.startswith("dist/src/") for path in paths if "/" in path)
