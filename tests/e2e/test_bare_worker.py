"""A worker without any Headway code serves the protocol beside a worker of the SDK."""

from pathlib import Path

from headway import App, every
from support.invariants import check_invariants

BARE = Path(__file__).parent / "bare_worker.py"


def test_the_bare_worker_imports_no_headway_code():
    lines = BARE.read_text().splitlines()
    imports = [line for line in lines if line.startswith(("import ", "from "))]
    assert imports
    assert not [line for line in imports if "headway" in line]
    assert len(lines) < 130


async def test_a_worker_with_nothing_but_nats_works_beside_the_sdk(world, processes):
    app = App("test")

    @app.job("echo", group="ops")
    async def echo(ctx, text: str):
        return {"echo": text, "by": "sdk"}

    for number in range(8):
        app.schedule(f"echo-{number}", job=echo, when=every(seconds=1), input=f"hello {number}")
    await world.dispatcher()
    await processes.python(str(BARE), "echo", "bare-1", HEARTBEAT_SECONDS="0.2")
    await world.until("SELECT count(*) FROM dispatcher.worker WHERE sdk = 'bare'")
    scheduler = await world.scheduler(app)
    await world.until(
        "SELECT count(*) >= 8 FROM dispatcher.run AS metadata WHERE state = 'completed' AND worker = 'bare-1'"
    )
    await world.worker(app)
    await world.until(
        "SELECT count(*) >= 4 FROM dispatcher.run AS metadata WHERE state = 'completed' AND worker <> 'bare-1'"
    )
    await scheduler.end_pass("tick")
    await world.until_settled(at_least=12)
    wrong = await world.rows(
        "SELECT * FROM dispatcher.run AS metadata JOIN dispatcher.work_queue ON work_queue.id = work_id"
        " WHERE metadata.state <> 'completed' OR output ->> 'echo' <> input #>> '{}'"
    )
    assert wrong == []
    await check_invariants(world.database)
