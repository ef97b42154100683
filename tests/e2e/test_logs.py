"""`headway logs`, `failing` and `runs --text --failed`: which runs fail, and what they log."""

import asyncio
import json
from uuid import uuid4

import pytest
import pytest_asyncio
from headway import App, manual, retry
from support.shell import Done, Shell

DEAD = "SELECT count(*) = 2 FROM dispatcher.dead_letter"


class Site:
    """An app with a job that waits and a job that fails, its services, and a shell."""

    def __init__(self, world, shell: Shell, console) -> None:
        self.world, self.shell, self.console = world, shell, console
        self.step, self.app = asyncio.Event(), App("site")

        @self.app.job("copy")
        async def copy(ctx, rows: int):
            ctx.log.info("opened", rows=rows)
            ctx.progress(40, "half way")
            await self.step.wait()
            try:
                raise KeyError(7)
            except KeyError:
                ctx.log.exception("closing")

        @self.app.job("import")
        @retry(attempts=1)
        async def import_orders(ctx, order: str):
            if order != "good":
                raise ValueError(f"order {order} has no address")

        self.app.schedule("copy-all", job=copy, when=manual(), input=7)
        for order in ("good", "bad 50%", "worse"):
            name = f"import-{order.split()[0]}"
            self.app.schedule(name, job=import_orders, when=manual(), input=order)

    async def __call__(self, *arguments: str) -> Done:
        return await self.shell.run(*arguments, **self.console.environment())


@pytest_asyncio.fixture
async def site(world, tmp_path, console):
    made = Site(world, Shell(tmp_path), console)
    await world.serve(made.app)
    await world.scheduler(made.app)
    yield made
    made.step.set()


async def test_a_log_is_followed_to_the_end_of_the_run(site):
    done = await site("trigger", "copy-all", "--json")
    work = json.loads(done.out)["work"]
    environment = site.console.environment()
    follower = await site.shell.start("logs", work, "--follow", "--json", **environment)
    lines = [json.loads(await follower.stdout.readline()) for _ in range(2)]
    assert lines[0]["line"]["message"] == "opened"
    assert lines[1] == {"progress": {"percent": 40.0, "message": "half way"}}
    [run] = await site.world.rows("SELECT run_id FROM dispatcher.run")
    live = await site("logs", str(run["run_id"]))
    assert live.out.splitlines()[0].endswith(" info opened rows=7")
    assert live.out.splitlines()[1:] == ["progress: 40 % half way"]
    assert "in progress; --follow prints new lines" in live.err
    site.step.set()
    rest = [json.loads(line) for line in (await follower.stdout.read()).splitlines()]
    assert await follower.wait() == 0
    assert [rest[0]["line"]["message"], rest[1]] == [
        *("closing", {"state": "completed", "dropped": 0})
    ]
    kept = json.loads((await site("logs", str(run["run_id"])[:13], "--json")).out)
    assert [line["message"] for line in kept["lines"]] == ["opened", "closing"]
    assert (kept["state"], kept["percent"]) == ("completed", 40.0)
    printed = await site("logs", work)
    [_, closing, *stack] = printed.out.splitlines()
    assert closing.endswith(" error closing")
    assert (stack[0], stack[-2]) == ("    Traceback (most recent call last):", "    KeyError: 7")
    assert f"run {run['run_id']}: completed" in printed.err


@pytest.mark.thorough
async def test_failing_jobs_and_runs_are_found(site):
    for order in ("good", "bad", "worse"):
        assert (await site("trigger", f"import-{order}")).code == 0
    await site.world.until(DEAD)
    await site.world.until_settled(at_least=3)
    [failing] = json.loads((await site("failing", "--json")).out)
    assert (failing["job"], failing["runs"], failing["failed"]) == ("import", 3, 2)
    assert (failing["dead_letters"], round(failing["rate"], 3)) == (2, 0.667)
    assert failing["failure_kind"] == "ValueError"
    table = (await site("failing", "--since", "1h")).out.splitlines()
    assert table[1].split()[:6] == ["import", "66.7", "%", "2", "3", "2"]
    # Open dead letters keep a job in the list.
    [old] = json.loads((await site("failing", "--since", "0s", "--json")).out)
    assert (old["runs"], old["rate"], old["dead_letters"]) == (0, None, 2)
    await site("dead-letters", "acknowledge", "--all", "--yes")
    nothing = await site("failing", "--since", "0s")
    assert nothing.out == "no job has failed since then, and there are no open dead letters\n"

    async def found(*filters: str) -> list[str]:
        runs = json.loads((await site("runs", "--json", *filters)).out)
        return sorted(run["manifest"] for run in runs)

    assert await found("--failed", "--since", "1h") == ["import-bad", "import-worse"]
    assert await found("--text", "GOOD") == ["import-good"]
    assert await found("--text", "50%") == ["import-bad"]
    assert await found("--failed", "--text", "worse has no") == ["import-worse"]


@pytest.mark.thorough
@pytest.mark.timeout(120)
async def test_wrong_requests_are_answered_with_one_line(site):
    unknown = str(uuid4())
    for wrong, words in (
        (["logs"], "Missing argument 'ID'"),
        (["logs", "x"], "invalid id 'x': ids look like"),
        (["logs", unknown, "--follow"], f"there is no run {unknown}: it may be older"),
        (["logs", "ffff"], "no run has an id that begins with 'ffff'"),
        (["failing", "--since", "soon"], "or an age such as 30m, 2h or 3d"),
        (["runs", "--failed", "--state", "completed"], "exclude each other"),
        (["runs", unknown, "--failed"], "leave out --failed"),
        (["runs", "--text", ""], "text"),
    ):
        done = await site(*wrong)
        assert (done.code, done.out) == (2, ""), wrong
        assert len(done.complaints) == 1, (wrong, done.complaints)
        assert words in done.complaints[0], done.complaints
