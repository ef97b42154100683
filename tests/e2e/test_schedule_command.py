"""`headway schedule`, and the backfill of `headway trigger`."""

import json

import pytest_asyncio
from headway import App, daily, manual
from support.shell import Done


@pytest_asyncio.fixture
async def headway(shell, world, console):
    app = App("shop")

    @app.job("sync", group="ops", timeout=33, labels={"team": "data"})
    async def sync(ctx, number: int): ...

    app.schedule("nightly", job="sync", when=manual(), input=1)
    app.schedule("clocked", job="sync", when=daily("03:15", tz="Europe/Berlin"), input=1)
    await world.scheduler(app, tick="off")

    async def run(*arguments: str, **environment: str) -> Done:
        return await shell.run(*arguments, **console.environment(), **environment)

    return run


async def test_manifests_are_made_changed_and_deleted(headway):
    schedule = ("schedule", "add", "mine", "--job", "sync", "--daily", "03:15", "--input", "7")
    made = await headway(*schedule, "--set", "overlap=queue_one", HEADWAY_TZ="Europe/Berlin")
    assert (made.code, made.err) == (0, "")
    assert "mine: created; daily at 03:15" in made.out
    assert "(Europe/Berlin)" in made.out
    twice = await headway(*schedule)
    assert (twice.code, "use 'headway schedule change mine'" in twice.err) == (2, True)
    changed = await headway("schedule", "change", "mine", "--every", "2h", "--label", "tier=1")
    assert "mine: changed; every 2 hours" in changed.out
    found = json.loads((await headway("manifest", "mine", "--json")).out)["definition"]
    assert (found["timing"]["zone"], found["input"]) == ("Europe/Berlin", 7)
    assert (found["timeout_seconds"], found["group"]) == (33, "ops")
    assert (found["overlap"], found["labels"]) == (
        {"policy": "queue_one"},
        {"team": "data", "tier": "1"},
    )
    child = await headway(
        "schedule", "add", "after", "--job", "sync", "--depends-on", "nightly", "--input", "1",
        "--dormant", "--json",
    )  # fmt: skip
    assert json.loads(child.out)["created"] == ["after"]
    gone = await headway("schedule", "delete", "mine", "--yes")
    assert (gone.code, "deleted" in gone.out) == (0, True)


async def test_each_error_names_its_remedy(headway):
    for arguments, message in (
        (("add", "x", "--daily", "03:15"), "nothing to run: give --job"),
        (("add", "x", "--job", "sync"), "has no cadence: write one of"),
        (("add", "x", "--job", "sync", "--every", "often"), "write 30s, 5m or 2h"),
        (("add", "x", "--job", "sync", "--depends-on", "no", "--input", "1"), "does not exist"),
        (("add", "x", "--job", "sync", "--set", "colour=red", "--manual"), "unknown key 'colour'"),
        (("change", "nightly", "--daily", "03:15"), "declared by the application 'shop'"),
        (("change", "nobody", "--daily", "03:15"), "there is no manifest 'nobody'"),
        (("change", "nightly"), "nothing to change"),
    ):
        done = await headway("schedule", *arguments)
        assert (done.code != 0, message in done.err) == (True, True), done.err


async def test_a_backfill_shows_its_count_before_it_queues(headway, world):
    since = ("trigger", "clocked", "--from", "2026-01-01 00:00", "--to", "2026-01-03 23:00")
    unconfirmed = await headway(*since)
    assert unconfirmed.code == 2
    assert "add --yes to queue 3 occurrences" in unconfirmed.err
    assert await world.value("SELECT count(*) FROM scheduler.occurrence") == 0
    done = await headway(*since, "--yes")
    assert "clocked: 3 of 3 occurrences queued, 2026-01-01T02:15:00+00:00" in done.out
    again = json.loads((await headway(*since, "--json")).out)
    assert (again["queued"], again["known"]) == (0, 3)
    wrong = await headway("trigger", "clocked", "--to", "2026-01-03")
    assert (wrong.code, "need --from" in wrong.err) == (2, True)
