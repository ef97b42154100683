"""Commands for on-call operators: cancel, dead-letters, work, runs, workers."""

import asyncio
import json
import re
from uuid import uuid4

import pytest
import pytest_asyncio
from headway import App, retry
from support.cadences import when_made_due
from support.shell import Done, Shell
from support.world import until

UUID = r"[0-9a-f]{8}-[0-9a-f-]{27}"


class Incident:
    """An app whose job fails until it is fixed, its services, and a shell."""

    def __init__(self, world, shell: Shell, console) -> None:
        self.world = world
        self.shell = shell
        self.console = console
        self.fixed = asyncio.Event()
        self.hold = asyncio.Event()
        self.inputs: list = []
        self.app = App("shop")

        @self.app.job("import", group="ops")
        @retry(attempts=2, interval=0)
        async def import_orders(ctx, given: dict):
            self.inputs.append(given)
            if not self.fixed.is_set():
                raise ValueError(f"order {given['order']} has no address")
            await self.hold.wait()

        for number in range(3):
            self.app.schedule(
                f"import-{number}", job=import_orders, when=when_made_due(), input={"order": number}
            )

    async def __call__(self, *arguments: str) -> Done:
        return await self.shell.run(*arguments, **self.console.environment())

    async def letters(self) -> list[dict]:
        async def three():
            return await self.world.value("SELECT count(*) = 3 FROM dispatcher.dead_letter")

        await until(three, within=20, what="three dead letters")
        return json.loads((await self("dead-letters", "list", "--json")).out)


@pytest_asyncio.fixture
async def incident(world, tmp_path, console):
    made = Incident(world, Shell(tmp_path), console)
    await world.run(made.app, worker_name="w1")
    yield made
    made.hold.set()


@pytest.mark.long
async def test_dead_letters_are_listed_and_shown(incident):
    letters = await incident.letters()
    done = await incident("dead-letters")
    assert (done.code, done.err) == (0, "")
    heading, *rows = done.out.splitlines()
    assert heading.split()[:3] == ["DEAD", "LETTER", "AGE"]
    assert len(rows) == 3
    assert re.match(
        rf"{UUID} +\d+s +import +import-\d +2 +ValueError: order \d has no address +\w{{12}} +awaiting",
        rows[0],
    )
    second = next(letter for letter in letters if letter["manifest"] == "import-1")
    found = await incident("dead-letters", "list", "--manifest", "import-1", "--newer-than", "1h")
    assert found.out.count("import-1") == 1
    assert second["dead_letter"] in found.out
    assert (await incident("dead-letters", "list", "--older-than", "1h")).out == (
        "no open dead letters\n"
    )
    same = await incident("dead-letters", "list", "--fingerprint", second["fingerprint"], "-n", "2")
    assert same.out.splitlines()[-1].startswith("there are more: use -n")
    shown = await incident("dead-letters", "show", second["dead_letter"][:-2])
    assert re.search(r'^input +{"order":1}$', shown.out, re.MULTILINE)
    assert "2 runs in round 1:" in shown.out
    assert "raise ValueError" in shown.out
    full = json.loads((await incident("dead-letters", "show", second["work"], "--json")).out)
    assert [run["attempt"] for run in full["runs"]] == [1, 2]


async def test_dead_letters_are_retried_and_acknowledged(incident):
    incident.hold.set()
    first, second, third = await incident.letters()
    incident.fixed.set()
    done = await incident("dead-letters", "retry", first["dead_letter"][:-1])
    assert (done.code, done.out) == (
        0,
        f"dead letter {first['dead_letter']}: runs again, in round 2\n",
    )
    again = await incident("dead-letters", "retry", first["dead_letter"])
    assert again.code == 1
    assert "ada-admin retried it at" in again.out
    (incident.shell.folder / "edited.json").write_text('{"order": 77}')
    edited = await incident(
        "dead-letters", "retry", second["dead_letter"], "--input-file", "edited.json"
    )
    assert edited.code == 0, edited.err
    await incident.world.until(
        "SELECT count(*) = 2 FROM dispatcher.work_queue WHERE outcome='completed'"
    )
    assert {"order": 77} in incident.inputs
    shown = await incident("dead-letters", "show", second["dead_letter"][:-2])
    assert "edited /order: " in shown.out
    assert "-> 77" in shown.out
    away = await incident(
        "dead-letters", "acknowledge", "--all", "--yes", "--job", "import", "--note", "by hand"
    )
    assert (away.code, away.out) == (0, "1 dead letter: 1 acknowledged\n")
    none = await incident("dead-letters", "retry", "--all", "--yes")
    assert none.out == "0 dead letters: none matched\n"
    shown = json.loads((await incident("dead-letters", "show", third["dead_letter"], "--json")).out)
    assert (shown["status"]["state"], shown["status"]["note"]) == ("acknowledged", "by hand")


@pytest.mark.timeout(300)  # a process for each line
@pytest.mark.long
async def test_a_wrong_command_is_answered_with_one_line(incident):
    letter = (await incident.letters())[0]["dead_letter"]
    for wrong, words in (
        (["dead-letters", "--state", "dead"], "is not one of"),
        (["dead-letters", "retry"], "nothing to retry: give ids of dead letters, or --all"),
        (["dead-letters", "retry", letter, "--all"], "give ids, or --all with filters, not both"),
        (["dead-letters", "retry", "--all"], "add --yes"),
        (["dead-letters", "retry", "--all", "--yes", "--input", "1"], "for one dead letter"),
        (["dead-letters", "retry", letter, "--input", "{"], "'{' is not JSON"),
        (["dead-letters", "retry", letter, "--input", '"x"'], "does not fit job 'import'"),
        (["dead-letters", "retry", letter, "--input-file", "gone"], "'gone' does not exist"),
        (["dead-letters", "retry", "7"], "invalid id '7': ids look like"),
        (["dead-letters", "show", str(uuid4())], "see 'headway dead-letters list --state all'"),
        (["dead-letters", "list", "--older-than", "soon"], "or an age such as 30m, 2h or 3d"),
        (["dead-letters", "list", "--state", "dead"], "'dead' is not one of"),
        (["cancel"], "give ids of runs or work, or --manifest, or --group"),
        (["cancel", "--manifest", "a", "--group", "b"], "or --manifest, or --group"),
        (["cancel", str(uuid4())], "there is no work and no run"),
        (["cancel", "--manifest", "import-9"], "did you mean 'import-"),
        (["job", "import"], "nothing to change: give --max-active, --rate or --reset"),
        (["job", "import", "--rate", "often"], "100/minute"),
        (["job", "nobody", "--max-active", "3"], "there is no job 'nobody': declared are import"),
        (["cancel", "--group", "nobody"], "there is no group 'nobody': see 'headway groups'"),
        (["work", str(uuid4())], "knows no work or run"),
        (["work", str(uuid4()), "--job", "x"], "leave out --job"),
        (["runs", "x"], "invalid id 'x'"),
        (["runs", str(uuid4())], "there is no run"),
        (["runs", "ffff"], "no run has an id that begins with 'ffff'"),
        (["dead-letters", "retry", "ffff"], "no dead letter has an id that begins with 'ffff'"),
    ):
        done = await incident(*wrong)
        assert (done.code, done.out) == (2, ""), wrong
        assert len(done.complaints) == 1, wrong
        assert words in done.complaints[0], done.complaints
    unknown = str(uuid4())
    done = await incident("dead-letters", "acknowledge", unknown)
    assert (done.code, f"there is no dead letter {unknown}" in done.out) == (1, True)


@pytest.mark.long
async def test_work_runs_and_workers_are_shown_and_cancelled(incident):
    await incident.letters()
    incident.fixed.set()
    await incident("dead-letters", "retry", "--all", "--yes")
    await incident.world.until(
        "SELECT count(*) = 3 FROM dispatcher.run WHERE state = 'in_progress'"
    )
    listed = await incident("work")
    assert re.search(
        rf"^{UUID} +import-1 +import +ops +dispatched +- +2 +3 ", listed.out, re.MULTILINE
    )
    room = await incident("groups", "--occupancy")
    assert re.search(r"^ops +3 +no limit +3 +0 +0 +- +0$", room.out, re.MULTILINE)
    workers = await incident("workers")
    assert re.search(r"^w1 +alive +3 of 10 ", workers.out, re.MULTILINE)
    running = json.loads((await incident("runs", "--state", "in_progress", "--json")).out)
    assert len(running) == 3
    run = running[0]
    done = await incident("cancel", run["run"], "--reason", "wrong customer")
    assert (done.code, "is asked to stop" in done.out) == (0, True)
    await incident.world.until(
        "SELECT count(*) FROM dispatcher.work_queue WHERE outcome = 'cancelled'"
    )
    done = await incident("cancel", run["work"])
    assert (done.code, "is settled already (cancelled)" in done.out) == (1, True)
    shown = await incident("runs", run["run"])
    assert re.search(r"^cancelled +wrong customer$", shown.out, re.MULTILINE)
    work = await incident("work", run["run"])
    assert "3 runs:" in work.out
    assert re.search(r"^attempts +1 of 2 in this round$", work.out, re.MULTILINE)
    other = running[1]["manifest"]
    done = await incident("cancel", "--manifest", other, "--yes")
    assert (done.code, done.out.splitlines()[-1]) == (0, f"{other}: 1 asked to stop")
    await incident.world.until(
        "SELECT count(*) = 2 FROM dispatcher.work_queue WHERE outcome='cancelled'"
    )
    done = await incident("workers", "drain", "w1", "nobody")
    assert (done.code, done.err, len(done.out.splitlines())) == (1, "", 2)
    done = await incident("cancel", "--group", "ops", "--yes", "--json")
    assert json.loads(done.out)["counts"] == {"asked_to_stop": 1}
    await incident.world.until_settled()
    assert (await incident("work")).out == "no work is under way\n"
    assert "3 runs" not in (await incident("runs", "--state", "cancelled", "-n", "1")).out


async def test_an_empty_list_is_reported(world, tmp_path, console):
    await world.dispatcher()
    for command in ("work", "runs", "workers", "dead-letters"):
        done = await Shell(tmp_path).run(command, **console.environment())
        assert (done.code, done.err, len(done.out.splitlines())) == (0, "", 1), command


async def test_without_a_dispatcher_the_error_names_it(tmp_path, console):
    """Lists come from the database; changes need the service."""
    shell, environment = Shell(tmp_path), console.environment()
    assert (await shell.run("work", **environment)).code == 0
    done = await shell.run("cancel", str(uuid4()), **environment)
    assert done.code == 2
    assert re.search(
        r"no service answers on headway\.control\.dispatcher\.\w+: is it running\?",
        done.complaints[0],
    )
