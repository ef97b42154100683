"""Maintenance windows on the command line: `headway pause` and `headway resume`."""

import json
import re

import pytest
import pytest_asyncio
from headway import App
from support.cadences import when_made_due
from support.shell import Shell


@pytest_asyncio.fixture
async def shell(world, tmp_path, console):
    app = App("shop")

    @app.job("import", group="ops", labels={"team": "data"})
    async def import_orders(ctx): ...

    app.schedule("first", job=import_orders, when=when_made_due())
    app.schedule("second", job=import_orders, when=when_made_due(), misfire="skip")
    await world.serve(app)
    await world.scheduler(app)
    made = Shell(tmp_path)

    async def run(*arguments: str):
        return await made.run(*arguments, **console.environment())

    return run


@pytest.mark.long
async def test_resume_shows_the_late_fires_before_it_queues_them(world, shell):
    done = await shell("pause", "--label", "team=data", "--reason", "new disks", "--for", "3600")
    assert (done.code, done.err) == (0, "")
    assert re.search(r"^first +20\d\d-", done.out, re.MULTILINE)
    assert re.search(r"^2 manifests paused until 20.* UTC$", done.out, re.MULTILINE)
    # Simulate an hour: the manifests are due, and none fires.
    await world.value(
        "UPDATE scheduler.manifest SET next_due_at = date_trunc('hour', clock_timestamp())"
    )
    assert "It is paused since" in (await shell("explain", "first")).out
    shown = await shell("resume", "--all", "--dry-run")
    assert re.search(r"^first .* 1 +fire_once +20\d\d-", shown.out, re.MULTILINE)
    assert "2 manifests would be resumed, " in shown.out
    # Without a terminal the command cannot ask for confirmation.
    refused = await shell("resume", "--all")
    assert (
        refused.code,
        "add --yes to resume them (--dry-run looks first)" in refused.complaints[0],
    ) == (2, True)
    assert await world.value("SELECT count(*) FROM scheduler.occurrence") == 0
    done = await shell("resume", "--all", "--yes", "--json")
    assert json.loads(done.out)["count"] == 2
    await world.until_settled()
    rows = await world.rows(
        "SELECT external_id FROM scheduler.occurrence JOIN scheduler.manifest ON id = manifest_id"
        " WHERE outcome = 'completed'"
    )
    assert "first" in {row["external_id"] for row in rows}
    assert (await shell("resume", "first")).out == "no selected manifest is paused\n"


async def test_a_pause_has_an_end_and_a_preview(shell):
    done = await shell("pause", "first", "--until", "2100-01-01", "--json")
    [paused] = json.loads(done.out)["manifests"]
    assert (paused["manifest"], paused["paused_until"]) == ("first", "2100-01-01T00:00:00Z")
    shown = await shell("resume", "--group", "ops", "--dry-run")
    assert re.search(r"^first .* 0 +fire_once +-$", shown.out, re.MULTILINE)
    assert shown.out.endswith("1 manifest would be resumed, no late fires follow\n")


@pytest.mark.long
async def test_ambiguous_or_invalid_selections_are_refused(shell):
    for wrong, words in (
        (("pause",), "select manifests in one way"),
        (("pause", "--label", "team"), "invalid pair"),
        (("pause", "--all", "--until", "2020-01-01"), "has passed"),
        (("pause", "--all", "--for", "60", "--until", "03:00"), "not both"),
        (("resume", "nobody"), "there is no manifest 'nobody'"),
    ):
        done = await shell(*wrong)
        assert done.code != 0, wrong
        assert words in "".join(done.complaints), done.complaints
