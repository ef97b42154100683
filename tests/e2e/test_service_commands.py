"""Commands that need running services."""

import json
import re

import pytest
import pytest_asyncio
from headway_cli.serve.find_app import load_app
from headway_scheduler.notifications.webhook import read_secrets
from support.shell import Done

CALENDAR = """
from headway import App, daily, exclude_days, manual
app = App("good")
@app.job("hello")
@daily("02:30", tz="Europe/Berlin", exclude=exclude_days("sat"))
async def hello(ctx): ...
@app.job("count")
async def count(ctx, number: int): ...
app.schedule("by-hand", job=count, when=manual(), input=1)
"""


YAML = """
app: good
jobs:
  hello: {takes_input: false}
manifests:
  yearly:
    job: hello
    monthly: {days: last, at: "23:00"}
"""


@pytest_asyncio.fixture
async def headway(shell, world, console):
    """Run `headway` against a scheduler with a declared app."""
    (shell.folder / "calendar_app.py").write_text(CALENDAR)
    (shell.folder / "app.yaml").write_text(YAML)
    await world.scheduler_of_files(load_app(str(shell.folder / "calendar_app.py")), tick="off")

    async def run(*arguments: str) -> Done:
        return await shell.run(*arguments, **console.environment())

    return run


async def test_an_application_is_listed_renamed_and_retired(headway, world):
    listed = await headway("apps")
    assert (listed.code, listed.err) == (0, "")
    heading, row = listed.out.splitlines()
    assert re.match(r"APP +SOURCE +GENERATION +MANIFESTS +JOBS +LAST DECLARED +BY$", heading)
    assert re.match(r"good +files +0 +2 +2 +.* ago +ada$", row)
    renamed = await headway("apps", "rename", "good", "better")
    assert (renamed.code, "renamed to better" in renamed.out) == (0, True), renamed
    again = await headway("apps", "rename", "good", "better")
    assert (again.code != 0, "renamed to 'better'" in again.err) == (True, True), again
    assert await world.value("SELECT array_agg(DISTINCT owner) FROM scheduler.manifest") == [
        "better"
    ]
    given_back = await headway("apps", "give-back", "better")
    assert "its code declares it at its next start" in given_back.out
    # Without a terminal the command cannot ask for confirmation.
    unsure = await headway("apps", "retire", "better")
    assert unsure.code != 0
    assert "delete 2 manifests with all runs and dead letters, retire 2 jobs" in (
        unsure.out + unsure.err
    )
    [app] = json.loads((await headway("apps", "--json")).out)
    assert (app["name"], app["source"], app["manifests"]) == ("better", "code", 2)
    retired = await headway("apps", "retire", "better", "--yes")
    assert (retired.code, "better: retired" in retired.out) == (0, True), retired
    assert "no application is declared" in (await headway("apps")).out
    unpruned = "SELECT count(*) FROM scheduler.manifest WHERE pruning_at IS NULL"
    assert await world.value(unpruned) == 0


async def test_manifests_are_listed_and_shown(headway):
    done = await headway("manifests")
    assert (done.code, done.err) == (0, "")
    heading, by_hand, hello = done.out.splitlines()
    assert re.match(r"MANIFEST +JOB +GROUP +NEXT FIRE +STATUS +LAST +CADENCE$", heading)
    assert re.match(r"by-hand +count +count +- +ready +- +only when triggered", by_hand)
    # On the day on which summer time begins, 02:30 does not exist and the fire time is 03:00.
    assert re.search(r" 0(2:30|3:00):00\+0[12]:00 +ready .*\(Europe/Berlin\)$", hello)
    manifest = json.loads((await headway("manifest", "by-hand", "--json")).out)
    assert (manifest["status"]["job"], manifest["definition"]["input"]) == ("count", 1)
    assert re.search(r"^input +1$", (await headway("manifest", "by-hand")).out, re.MULTILINE)
    assert re.search(
        r"^hello +no limit +no limit +0 +yes +1 +-$", (await headway("groups")).out, re.MULTILINE
    )


async def test_preview_shows_the_next_fire_times(headway):
    done = await headway("preview", "hello-daily", "-n", "3", "--after", "2027-03-26 12:00")
    assert done.out.splitlines() == [
        "DUE                        FIRES                      NOTE",
        "2027-03-27 02:30:00+01:00  not at all                 excluded: on Saturday",
        "2027-03-28 03:00:00+02:00  2027-03-28 03:00:00+02:00  the clock goes forward that day",
        "2027-03-29 02:30:00+02:00  2027-03-29 02:30:00+02:00",
        "2027-03-30 02:30:00+02:00  2027-03-30 02:30:00+02:00",
        "times are Europe/Berlin",
    ]
    done = await headway("preview", "by-hand")
    assert done.out == "note: it has no times: it runs when it is triggered\n"
    done = await headway("preview", "hello-daily", "--after", "noon")
    assert done.code == 2
    assert "invalid time 'noon': write" in done.complaints[0]
    assert "it is Europe/Berlin time" in done.complaints[0]


@pytest.mark.long
async def test_work_is_explained(headway, world):
    done = await headway("trigger", "by-hand", "--json")
    work = json.loads(done.out)["work"]
    assert "headway: " in (await headway("explain", "work", work)).complaints[0]
    await world.dispatcher()
    await world.until("SELECT count(*) FROM dispatcher.work_queue")
    done = await headway("explain", "work", work)
    assert (done.code, done.err) == (0, "")
    text, heading, *gates = done.out.splitlines()
    assert text.startswith(f"Work {work} (of manifest 'by-hand', job 'count', group 'count') waits")
    assert "0 live workers serve job 'count'" in text
    assert heading.split() == ["GATE", "NOW", "OPENS", "WHY"]
    assert any(re.match(r"no_worker +closed +- +0 live", gate) for gate in gates)
    explanation = json.loads((await headway("explain", "work", work, "--json")).out)
    assert explanation["reason"] == "no_worker"
    assert (await headway("explain", work[:8])).out == done.out
    assert (await headway("explain", "work", "by-hand")).code == 2
    assert (await headway("explain", "work", work, "more")).code == 2
    assert (await headway("explain", "work", work, "--at", "03:15")).code == 2


async def test_a_manifest_is_explained(headway):
    done = await headway("explain", "hello-daily", "--at", "2099-03-27 02:30")
    assert done.out == "2099-03-27 02:30:00+01:00 lies ahead and will fire.\n"
    done = await headway("explain", "helo-daily")
    assert (done.code, done.out) == (2, "")
    assert done.complaints == [
        "headway: there is no manifest 'helo-daily': did you mean 'hello-daily'?"
    ]


async def test_definitions_are_planned_and_applied(headway):
    planned = await headway("plan", "app.yaml", "--days", "2")
    assert planned.code == 0, planned.err
    assert planned.out.startswith("plan for good: nothing has been changed\n  + yearly  new\n")
    assert "  - hello-daily  deleted\n" in planned.out
    assert re.search(r"    - \d{4}-\d\d-\d\d 0(2:30|3:00):00\+0[12]:00", planned.out)
    applied = json.loads((await headway("apply", "app.yaml", "--prune", "keep", "--json")).out)
    assert (applied["created"], applied["pruned"]) == (["yearly"], [])
    for wrong, words in (
        (["apply"], "Missing argument 'APP'"),
        (["plan", "nosuch.py"], "there is no file 'nosuch.py'"),
    ):
        done = await headway(*wrong)
        assert done.code == 2
        assert len(done.complaints) == 1
        assert words in done.complaints[0]


async def test_items_removed_from_a_batch_need_confirmation_under_every_policy(headway, shell):
    batch = "batches:\n  many: {job: hello, manual: true, items: [{id: a}, {id: b}]}\n"
    (shell.folder / "batch.yaml").write_text(YAML + batch)
    assert (await headway("apply", "batch.yaml", "--prune", "keep")).code == 0
    (shell.folder / "batch.yaml").write_text(YAML + batch.replace(", {id: b}", ""))
    done = await headway("apply", "batch.yaml", "--prune", "keep")
    assert (done.code, done.out) == (2, "")
    assert "--yes to apply it and delete 1 manifest" in done.complaints[0]
    assert "(many-b)" in done.complaints[0]
    done = await headway("apply", "batch.yaml", "--prune", "keep", "--yes")
    assert (done.code, done.out.splitlines()[1]) == (0, "  - many-b  deleted")


@pytest.mark.usefixtures("headway")
async def test_the_generation_comes_from_the_environment(shell, console):
    async def run(generation: str, *arguments: str) -> Done:
        environment = {**console.environment(), "HEADWAY_GENERATION": generation}
        return await shell.run(*arguments, **environment)

    assert (await run("7", "apply", "app.yaml", "--prune", "keep")).code == 0
    done = await run("6", "plan", "app.yaml")
    stale = "generation 7 of 'good' has already declared its manifests: the older generation 6"
    assert stale in done.err
    done = await run("6", "apply", "app.yaml", "--yes")
    assert (done.code, done.out) == (0, "nothing of good was applied\n")
    assert stale in done.err
    done = await run("-1", "plan", "app.yaml")
    assert (done.code, done.out) == (2, "")
    assert "HEADWAY_GENERATION" in done.complaints[0]


@pytest.mark.long
async def test_operators_change_and_trigger(headway):
    assert (await headway("disable", "by-hand", "hello-daily")).out.count(": disabled") == 2
    done = await headway("enable", "by-hand", "nobody")
    assert (done.code, done.out) == (2, "by-hand: enabled\n")
    assert "there is no manifest 'nobody'" in done.complaints[0]
    done = await headway("change", "hello-daily", "--jitter", "5")
    assert done.out == "hello-daily: jitter 5 s\n"
    done = await headway("group", "count", "--max-active", "3", "--disable")
    assert (done.code, done.out) == (0, "group count: at most 3 at once, disabled\n")
    assert (await headway("group", "count", "--max-active", "none", "--enable")).code == 0
    assert "queued" in (await headway("trigger", "by-hand", "--input", "2")).out
    assert "a trigger by ada-admin fired" in (await headway("explain", "by-hand")).out
    for wrong, words in (
        (["trigger", "by-hand", "--input", '"two"'], "the input does not fit job 'count'"),
        (["trigger", "by-hand", "--input", "two"], "'two' is not JSON"),
        (["group", "count", "--max-active", "many"], "'many' is neither a number nor none"),
        (["group", "count"], "nothing to change"),
        (["change", "by-hand"], "nothing to change"),
        (["change", "by-hand", "--jitter", "5"], "has no fire times of its own"),
        (["delete", "by-hand"], "is declared by the application 'good'"),
    ):
        done = await headway(*wrong)
        assert done.code == 2
        assert len(done.complaints) == 1
        assert words in done.complaints[0]


async def test_a_refusal_for_one_manifest_does_not_stop_the_others(headway):
    both = ("by-hand", "hello-daily")
    assert (await headway("disable", *both)).code == 0
    done = await headway("enable", "nobody", *both)
    assert (done.code, done.out) == (2, "by-hand: enabled\nhello-daily: enabled\n")
    assert "there is no manifest 'nobody'" in done.complaints[0]
    done = await headway("disable", "none", *both, "nobody", "--json")
    assert done.code == 2
    texts = [result["text"] for result in json.loads(done.out)]
    assert texts == [f"{manifest}: disabled" for manifest in both]
    for missing in ("none", "nobody"):
        assert f"there is no manifest {missing!r}" in done.err


async def test_deleting_a_manifest_that_code_dropped_needs_confirmation(headway):
    assert (await headway("apply", "app.yaml", "--prune", "keep")).code == 0
    done = await headway("delete", "by-hand", "yearly")
    assert (done.code, done.out) == (2, "")
    assert "cannot ask for confirmation here: add --yes to delete 1 manifest (by-hand)" in done.err
    done = await headway("delete", "by-hand", "--yes")
    assert (done.code, done.err) == (0, "")
    again = await headway("delete", "by-hand", "--yes")
    assert (again.code, again.out) == (2, "")
    assert re.search(r"'by-hand': it was deleted at [-0-9: ]+ UTC by ada-admin", again.err)


async def test_operators_limit_jobs(headway):
    done = await headway("job", "count", "--max-active", "3", "--rate", "10/minute")
    assert (done.out, done.err) == ("job count: at most 3 at once, at most 10/minute\n", "")
    listed = await headway("jobs")
    assert re.search(
        r"^count +3 +0 +10/minute +3 +none alive +1 +max_active, rate$", listed.out, re.MULTILINE
    )
    [count, hello] = json.loads((await headway("jobs", "--json")).out)
    assert (count["touched"], hello["max_active"]) == (["max_active", "rate"], None)
    done = await headway("job", "count", "--reset", "max-active", "--reset", "rate")
    assert done.out == "job count: any number at once, at any rate\n"
    done = await headway("job", "nobody", "--max-active", "3")
    assert (done.code, done.out) == (2, "")
    assert "there is no job 'nobody': declared are count" in done.complaints[0]


@pytest.mark.long
async def test_work_is_enqueued_and_refused_work_is_dismissed(headway, world):
    done = await headway("enqueue", "count", "--input", "2", "--key", "k", "--delay", "60")
    assert re.fullmatch(r"count: enqueued as work [0-9a-f-]{36}\n", done.out), done.err
    again = await headway(
        "enqueue", "count", "--input", "2", "--key", "k", "--delay", "60", "--json"
    )
    assert json.loads(again.out)["work"] in done.out
    await world.until("SELECT NOT EXISTS (SELECT FROM scheduler.enqueued WHERE state = 'waiting')")
    assert (await headway("enqueued")).out == "no work is pending, none was refused\n"
    work = await world.value("SELECT headway.enqueue('count', '\"two\"'::text::jsonb)")
    await world.until("SELECT EXISTS (SELECT FROM scheduler.enqueued WHERE state = 'refused')")
    assert "invalid_input" in (await headway("enqueued", "--refused")).out
    assert json.loads((await headway("enqueued", "--json")).out)[0]["work"] == str(work)
    assert ": deleted" in (await headway("dismiss", str(work))).out
    for wrong, words in (
        (["enqueue", "nobody"], 'job "nobody" is not declared'),
        (["enqueue", "count", "--input", "two"], "'two' is not JSON"),
        (["enqueue", "count", "--input", "3", "--key", "k"], "with other parameters"),
        (["enqueue", "count", "--input", "1", "--start-by", "soon"], "invalid time 'soon'"),
        (["dismiss", str(work)], "was not refused"),
    ):
        done = await headway(*wrong)
        assert done.code == 2
        assert words in done.complaints[0]


async def test_verify_reports_the_gaps_of_the_ledger(headway, world):
    done = await headway("verify")
    assert (done.code, done.out) == (0, "2 manifests, 0 decisions compared: no gaps\n")
    await world.value("UPDATE scheduler.timing SET since = since - interval '3 days'")
    done = await headway("verify", "hello-daily")
    assert done.code == 1
    gap, summary = done.out.splitlines()
    assert re.match(r"hello-daily: .* to .*: no decision is in the ledger$", gap)
    assert summary.endswith(" compared: 1 gap")
    assert len(json.loads((await headway("verify", "--json")).out)["gaps"]) == 1


async def test_notify_tests_the_webhook_and_creates_secrets(headway):
    refused = await headway("notify", "test")
    assert refused.code == 2
    assert "no webhook is configured, so no notification is sent" in refused.complaints[0]
    made = [(await headway("notify", "secret")).out for _ in range(2)]
    assert made[0] != made[1]
    assert [len(secret) for secret in read_secrets(" ".join(made))] == [32, 32]
