"""Commands that change many manifests, and commands that filter runs and the audit."""

import json
import re

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
    app.schedule("second", job=import_orders, when=when_made_due())
    app.schedule("third", job=import_orders, when=when_made_due(), group="late")
    await world.serve(app)
    await world.scheduler(app)
    made = Shell(tmp_path)

    async def run(*arguments: str):
        return await made.run(*arguments, **console.environment())

    return run


async def test_many_are_changed_after_their_number_was_confirmed(world, shell):
    refused = await shell("disable", "--group", "ops")
    assert refused.code == 2
    assert "add --yes to disable 2 manifests (first, second)" in refused.complaints[0]
    assert await world.value("SELECT bool_and(enabled) FROM scheduler.manifest")
    done = await shell("disable", "--group", "ops", "--yes")
    assert (done.code, done.out) == (0, "first: disabled\nsecond: disabled\n")
    done = await shell("enable", "--label", "team=data", "--yes", "--json")
    assert [(result["manifest"], result["done"]) for result in json.loads(done.out)] == [
        ("first", True),
        ("second", True),
        ("third", True),
    ]
    assert (await shell("disable", "--all", "--yes")).code == 0
    assert not await world.value("SELECT bool_or(enabled) FROM scheduler.manifest")
    assert (await shell("enable", "--all", "--yes")).code == 0
    assert await world.value("SELECT bool_and(enabled) FROM scheduler.manifest")
    both = await shell("enable", "first", "--all")
    assert "give ids of manifests, or --group, or --label, or --all" in both.complaints[0]
    terms = await shell("trigger", "--group", "ops", "--delay", "5")
    assert "--delay: only for a single manifest" in terms.complaints[0]
    assert (await shell("trigger", "--group", "ops", "--yes", "--key", "k")).code == 0
    assert (await shell("trigger", "--group", "ops", "--yes", "--key", "k")).code == 0
    await world.until("SELECT count(*) = 2 FROM dispatcher.run WHERE state = 'completed'")

    # Runs and audit entries are filtered by time.
    assert (await shell("runs", "--until", "1h")).out == "no matching runs\n"
    assert len(json.loads((await shell("runs", "--since", "1h", "--json")).out)) == 2
    wrong = await shell("runs", "--since", "yesterday")
    assert "invalid time 'yesterday': write" in wrong.complaints[0]
    assert "or an age such as 30m, 2h or 3d" in wrong.complaints[0]
    found = await shell("audit", "--people", "--action", "manifest.*", "--since", "1h", "--json")
    entries = json.loads(found.out)
    assert {entry["actor"] for entry in entries} == {"ada-admin"}
    assert {entry["target"] for entry in entries} == {"first", "second", "third"}
    shown = await shell("audit", "--target", "first", "-n", "1", "--people")
    heading, row, more = shown.out.splitlines()
    assert heading.split() == ["AT", "WHO", "ACTION", "TARGET", "CHANGE"]
    assert re.search(r"^20\d\d-.* ada-admin +manifest\.\w+ +first ", row)
    assert more == "there are more: use -n, or narrow the filters (shown: 1)"
    assert (await shell("audit", "--until", "1h")).out == "no matching changes\n"
