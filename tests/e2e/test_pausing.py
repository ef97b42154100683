"""Maintenance windows on the command line: `headway pause`, `headway pauses`, `headway resume`."""

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
    chosen = ("--label", "team=data")
    done = await shell("pause", *chosen, "--reason", "new disks", "--for", "3600", "--yes")
    assert (done.code, done.err) == (0, "")
    assert re.search(r"^first +20\d\d-", done.out, re.MULTILINE)
    assert re.search(r"^2 manifests paused until 20.* UTC\. To end", done.out, re.MULTILINE)
    # Simulate an hour: the manifests are due, and none fires.
    await world.value(
        "UPDATE scheduler.manifest SET next_due_at = date_trunc('hour', clock_timestamp())"
    )
    assert "It is paused since" in (await shell("explain", "first")).out
    shown = await shell("resume", *chosen, "--dry-run")
    assert re.search(r"^first .* 1 +fire_once +20\d\d-", shown.out, re.MULTILINE)
    assert "2 manifests would be resumed, " in shown.out
    # Without a terminal the command cannot ask for confirmation.
    refused = await shell("resume", *chosen)
    assert (
        refused.code,
        "add --yes to resume them (--dry-run looks first)" in refused.complaints[0],
    ) == (2, True)
    assert await world.value("SELECT count(*) FROM scheduler.occurrence") == 0
    done = await shell("resume", *chosen, "--yes", "--json")
    assert json.loads(done.out)["count"] == 2
    await world.until_settled()
    rows = await world.rows(
        "SELECT external_id FROM scheduler.occurrence JOIN scheduler.manifest ON id = manifest_id"
        " WHERE outcome = 'completed'"
    )
    assert "first" in {row["external_id"] for row in rows}
    assert (await shell("resume", "first")).out == "no selected manifest is paused\n"


async def test_a_pause_of_all_asks_and_spares_the_pauses_of_others(world, shell):
    """A short pause once ended a longer one, and resuming all ended every pause."""
    mine = json.loads((await shell("pause", "first", "--reason", "mine", "--json")).out)["pause"]
    refused = await shell("pause", "--all", "--for", "12")
    assert refused.code == 2
    assert (
        "add --yes to pause 2 manifests (first, second) and those declared later, until"
        in refused.complaints[0]
    )
    done = await shell("pause", "--all", "--for", "12", "--reason", "short", "--yes")
    assert "other pauses hold 1 of them longer" in done.out
    listed = (await shell("pauses")).out
    assert re.search(rf"^{mine} +first +1 .* resumed +- +mine$", listed, re.MULTILINE), listed
    assert re.search(r"all manifests +2 .* +\d+s +short$", listed, re.MULTILINE), listed
    top = (await shell("top")).out
    assert re.search(
        r"^PAUSED: all manifests for \d+s more, by .* · headway resume ", top, re.MULTILINE
    )
    await world.until("SELECT count(*) = 1 FROM scheduler.pause", within=30)
    assert await world.value("SELECT paused FROM scheduler.manifest WHERE external_id = 'first'")
    assert "PAUSED" not in (await shell("top")).out
    # It was made for one manifest, so that is no way to end it.
    refused = await shell("resume", "--all")
    assert (refused.code, f"headway resume {mine}" in refused.err) == (2, True)
    assert "1 manifest resumed" in (await shell("resume", mine[:13])).out
    assert (await shell("pauses")).out == "no pause is in force\n"
    assert "has ended already" in "".join((await shell("resume", mine)).complaints)


async def test_a_pause_has_an_end_and_a_preview(shell):
    done = await shell("pause", "first", "--until", "2100-01-01", "--json")
    [paused] = json.loads(done.out)["manifests"]
    assert (paused["manifest"], paused["paused_until"]) == ("first", "2100-01-01T00:00:00Z")
    shown = await shell("resume", "first", "--dry-run")
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
        (("resume", "00000000-0000-0000-0000-000000000007"), "there is no pause 0000"),
    ):
        done = await shell(*wrong)
        assert done.code != 0, wrong
        assert words in "".join(done.complaints), done.complaints
