"""Programs under the supervisor: output, exit code, and their end."""

import asyncio
import os
import signal
import sys
from subprocess import PIPE

import pytest
from headway_embedded import (
    EmbeddedError,
    SupervisedProcess,
)
from support.embedded_parents import (
    FORKING_PARENT,
    STUBBORN,
    TIDY,
    import_path,
    is_alive,
    on_linux,
    until_gone,
)

pytestmark = pytest.mark.thorough


async def test_a_supervised_program_passes_on_its_output_and_exit_code():
    program = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)"
    process = await SupervisedProcess.start(
        [sys.executable, "-c", program], stdout=PIPE, stderr=PIPE
    )
    assert [line async for line in process.stdout] == [b"out\n"]
    assert [line async for line in process.stderr] == [b"err\n"]
    assert await process.wait() == process.returncode == 7
    assert await process.stop() == 7


async def test_a_supervised_program_stops_cleanly():
    process = await SupervisedProcess.start([sys.executable, "-c", TIDY], stdout=PIPE)
    assert await process.stdout.readline() == b"ready\n"
    assert process.returncode is None
    assert await process.stop(within=5) == 3
    assert await process.stdout.read() == b"tidied up\n"


async def test_a_supervised_program_that_will_not_stop_is_killed():
    process = await SupervisedProcess.start([sys.executable, "-c", STUBBORN], stdout=PIPE)
    await process.stdout.readline()
    async with asyncio.timeout(5):
        assert await process.stop(within=0.2) == -signal.SIGKILL
    assert not is_alive(process.process_id)


async def test_a_supervised_program_ends_although_its_output_is_not_read():
    program = "print('x' * 10_000_000)"
    process = await SupervisedProcess.start([sys.executable, "-c", program], stdout=PIPE)
    await process.stdout.readexactly(1)
    async with asyncio.timeout(5):
        assert await process.stop(within=0.2) != 0


async def test_a_program_that_cannot_be_started_is_named():
    with pytest.raises(EmbeddedError, match=r"/no/such \(No such file"):
        await SupervisedProcess.start(["/no/such", "argument"])


@on_linux
async def test_a_fork_of_the_killed_parent_does_not_keep_the_program_alive():
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", FORKING_PARENT),
        stdout=PIPE,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": import_path()},
    )
    program, fork = map(int, (await parent.stdout.readline()).split())
    try:
        parent.kill()
        await until_gone(program)
        assert is_alive(fork)
    finally:
        os.kill(fork, signal.SIGKILL)
        await parent.communicate()
