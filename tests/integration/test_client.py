"""The client: reads and changes over HTTP."""

import json
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import httpx
import pytest
from headway import App, Client, InvalidDefinitions, Item, cron, daily, every, manual
from headway.client.client import RequestFailed
from headway.define.definitions import Definitions, JobDefinition
from headway_contract.dead_letters import LetterFilter
from headway_errors import Invalid, Rejected
from support.cadences import when_made_due

ROOT = Path(__file__).parents[2]


def app_with(count: int = 0) -> App:
    app = App("test")
    app.job("job", group="ops")(lambda ctx: None)

    @app.job("sync", group="ops")
    async def sync(ctx, number: int): ...

    for number in range(count):
        app.schedule(f"m-{number:04}", job="job", when=when_made_due())
    return app


async def test_manifests_come_in_pages_and_in_order(world, client, monkeypatch):
    monkeypatch.setattr("headway.client.http_control._PAGE", 10)
    await world.scheduler(app_with(25))
    found = await client.manifests()
    assert [manifest.external_id for manifest in found] == [
        f"m-{number:04}" for number in range(25)
    ]
    assert {
        (manifest.owner, manifest.job, manifest.group, manifest.enabled, manifest.declared)
        for manifest in found
    } == {("test", "job", "ops", True, True)}
    assert all(manifest.next_due_at is not None for manifest in found)


async def test_connection_errors_are_reported(world, client):
    assert await client.manifests() == [], "the console reads the database"
    with pytest.raises(RequestFailed, match="no service answers"):
        await client.preview("m")
    async with Client("http://127.0.0.1:1") as nowhere:
        with pytest.raises(RequestFailed, match="does not answer"):
            await nowhere.manifests()


@pytest.mark.parametrize("url", ["nats://127.0.0.1:4222", "tls://broker:4222", "localhost:8080"])
def test_a_url_that_is_not_of_a_console_is_refused_with_the_remedy(url):
    with pytest.raises(RequestFailed, match=r"give the URL of the console.*http://127.0.0.1:8080"):
        Client(url, token="t")


async def test_all_problems_of_a_request_are_reported_at_once(world, client):
    await world.scheduler(App("test"), tick="off")
    with pytest.raises(Invalid) as refused:
        await client.change("a", attempts=0, jitter=-1)
    assert str(refused.value).splitlines() == [
        "attempts 0 is not valid: use a whole number from 1 to 1000000",
        "jitter_seconds -1 is not valid: use a number of seconds from 0 to 86400",
    ]
    with pytest.raises(Invalid, match=r"^priority 77 is not valid: use a whole number from 0"):
        await client.trigger("a", priority=77)


async def test_code_cannot_declare_a_runtime_manifest(world, client):
    app = App("test")
    app.job("job")(lambda ctx: None)
    await world.scheduler_of_files(app, tick="off")
    app.schedule("a", job="job", when=manual())
    await client.schedule("a", job="job", when=manual())
    with pytest.raises(Rejected, match=r"'a' was made at run time .* \('headway delete a'\)"):
        await client.apply(app.definitions())


async def test_a_runtime_manifest_belongs_to_no_application(world):
    await world.scheduler_of_files(app_with(1), tick="off")
    async with world.client("alice") as client:
        made = await client.schedule(
            "sync-x", job="sync", when=daily("03:15", tz="Europe/Berlin"), input=5, priority=3
        )
        assert (made.owner, made.created) == ("api", ["sync-x"])
        again = await client.schedule(
            "sync-x", job="sync", when=daily("03:15", tz="Europe/Berlin"), input=5, priority=3
        )
        assert (again.created, again.changed, again.unchanged) == ([], [], 1)
        changed = await client.schedule("sync-x", job="sync", when=manual(), input=6)
        assert changed.moved == ["sync-x"]
        await client.schedule("sync-y", job="sync", when=manual(), input=7)
        assert (await client.apply(app_with(0).definitions())).pruned == ["m-0000"]
        assert [manifest.external_id for manifest in await client.manifests()] == [
            "sync-x",
            "sync-y",
        ]
        status = (await client.manifest("sync-x")).status
        assert (status.owner, status.group, status.job) == ("api", "ops", "sync")
        assert "deleted" in (await client.delete("sync-x")).text
        assert [manifest.external_id for manifest in await client.manifests()] == ["sync-y"]
    sources = await world.rows(
        "SELECT DISTINCT source FROM scheduler.history WHERE subject = 'sync-x'"
    )
    assert [row["source"] for row in sources] == ["operator/alice"]


async def test_runtime_batches_prune_removed_items(world, client):
    await world.scheduler(app_with(), tick="off")
    await client.schedule("other", job="sync", when=manual(), input=1)
    made = await client.schedule_many(
        "many", job="sync", items={"a": 1, "b": 2}, when=every(minutes=5)
    )
    assert made.created == ["many-a", "many-b"]
    again = await client.schedule_many(
        "many", job="sync", items=[Item("b", 2), Item("c", 3)], when=every(minutes=5)
    )
    assert (again.created, again.unchanged, again.pruned) == (["many-c"], 1, ["many-a"])
    kept = await client.schedule_many(
        "many", job="sync", items={"d": 4}, when=every(minutes=5), prune=False
    )
    assert kept.pruned == []
    left = [manifest.external_id for manifest in await client.manifests()]
    assert left == ["many-b", "many-c", "many-d", "other"]


async def test_bad_definitions_are_refused_by_client_or_server(world, client):
    await world.scheduler(app_with(), tick="off")
    with pytest.raises(InvalidDefinitions, match="cron expression"):
        await client.schedule("x", job="sync", when=cron("99 * * * *"))
    with pytest.raises(TypeError, match="takes no keyword 'proirity'"):
        await client.schedule("x", job="sync", when=manual(), proirity=1)
    with pytest.raises(RequestFailed, match="does not fit job 'sync'"):
        await client.schedule("x", job="sync", when=manual(), input="text")
    with pytest.raises(RequestFailed, match="'nobody', which is not declared"):
        await client.schedule("x", job="nobody", when=manual())
    assert await client.manifests() == []


async def test_a_one_shot_runs_once(world, client):
    app = app_with()
    await world.serve(app)
    await world.scheduler(app)
    soon = await client.once("sync", input=1, delay=0.2)
    assert soon.startswith("once-")
    later = datetime(2099, 1, 1, 12, tzinfo=UTC)
    assert await client.once("sync", input=2, at=later, id="later") == "later"
    assert (await client.manifest("later")).status.next_due_at == later
    await world.until("SELECT outcome = 'completed' FROM scheduler.occurrence")
    await world.until("SELECT NOT enabled FROM scheduler.manifest WHERE external_id = $1", soon)
    text = (await client.explain(soon)).text
    assert "one-shot whose time is over" in text
    for wrong in ({}, {"at": later, "delay": 1}, {"at": datetime(2099, 1, 1)}):
        with pytest.raises(ValueError, match="once"):
            await client.once("sync", input=1, **wrong)


async def test_operators_change_manifests_and_groups(world):
    await world.scheduler(app_with(1), tick="off")
    async with world.client("bob") as client:
        await client.disable("m-0000")
        assert not (await client.manifest("m-0000")).status.enabled
        await client.enable("m-0000")
        await client.change("m-0000", attempts=7, interval=5, jitter=30)
        found = await client.manifest("m-0000")
        assert (found.definition["retry"]["attempts"], found.touched) == (
            7,
            ["attempts", "enabled", "interval", "jitter"],
        )
        await client.change("m-0000", give_back=["retry", "jitter", "enabled"])
        assert (await client.manifest("m-0000")).touched == []
        await client.change_group("ops", max_active=5, priority=9)
        await client.change_group("ops", max_active=None)
        [group] = await client.groups()
        assert (group.max_active, group.priority, group.touched) == (
            None,
            9,
            ["max_active", "priority"],
        )
        first = await client.trigger("m-0000", key="k")
        assert (first.result, (await client.trigger("m-0000", key="k")).result) == (
            "queued",
            "known",
        )
        assert (await client.trigger("m-0000")).result == "brought_forward"
        for refused in (client.trigger, client.enable, client.delete, client.change):
            with pytest.raises(RequestFailed, match="there is no manifest 'nobody'"):
                await refused("nobody")
        with pytest.raises(RequestFailed, match="there is no group 'nobody'"):
            await client.change_group("nobody", priority=1)
        with pytest.raises(RequestFailed, match="is declared by the application 'test'"):
            await client.delete("m-0000")
    assert (
        await world.value("SELECT count(*) FROM scheduler.history WHERE source = 'operator/bob'")
        == 8
    )


async def test_a_request_that_is_too_large_for_nats_is_refused(world, client):
    job = JobDefinition(name="big", description=os.urandom(1_000_000).hex())
    with pytest.raises(RequestFailed, match=r"NATS accepts 1048576 at most.*max_payload"):
        await client.apply(Definitions(owner="big", jobs=(job,)))


def document_paths() -> dict[tuple[str, str], set[str]]:
    """Return the operations of the OpenAPI document with the names of their parameters and fields."""
    document = json.loads((ROOT / "services/console/headway_console/api/openapi.json").read_text())
    found = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            names = {parameter["name"] for parameter in operation.get("parameters", ())}
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            reference = body.get("schema", {}).get("$ref", "").rpartition("/")[2]
            schema = document["components"]["schemas"].get(reference, {})
            found[method.upper(), path] = names | set(schema.get("properties", ()))
    return found


ID = UUID(int=1)
NOW = datetime(2027, 1, 1, tzinfo=UTC)
CALLS = {
    "manifests": (), "manifest": ("m",), "pauses": (), "groups": (), "preview": ("m", 3),
    "explain": ("m",), "explain_work": (ID,), "ledger": ("m",), "plan": (Definitions(owner="x"),),
    "apply": (Definitions(owner="x"),), "trigger": ("m",), "enqueue": ("job", 1), "enqueued": (),
    "dismiss": (ID,), "enable": ("m",), "disable": ("m",), "change": ("m",), "delete": ("m",),
    "change_group": ("ops",), "change_job": ("job",), "test_notification": (),
    "rename_app": ("a", "b"), "retire_app": ("a",), "give_back_app": ("a",), "pause": ("m",),
    "resume": ("m",), "dead_letters": (), "dead_letter": (ID,), "retry": (ID,),
    "retry_all": (LetterFilter(job="job"),), "acknowledge": (ID,),
    "acknowledge_all": (LetterFilter(job="job"),), "cancel": (ID,), "cancel_manifest": ("m",),
    "cancel_group": ("ops",), "works": (), "work": (ID,), "runs": (), "run": (ID,), "log": (ID,),
    "workers": (), "drain": ("w",), "occupancy": ("ops",), "once": ("job",),
    "schedule": ("m",), "schedule_many": ("m",), "backfill": ("m",), "change_many": ("m",),
}  # fmt: skip
OPTIONS = {
    "preview": {"after": NOW, "each": True}, "explain": {"at": NOW}, "ledger": {"since": NOW},
    "plan": {"prune": "delete", "take_over": True}, "apply": {"prune": "delete", "take_over": True},
    "trigger": {"input": 1, "delay": 2.0, "priority": 1, "start_within": 5.0, "key": "k"},
    "enqueue": {"group": "ops", "priority": 1, "delay": 1.0, "start_by": NOW, "key": "k"},
    "enqueued": {"refused_only": True}, "change": {"attempts": 2, "interval": 1.0, "jitter": 1.0},
    "change_group": {"max_active": 1, "priority": 1, "enabled": True, "rate": "1/second"},
    "change_job": {"max_active": None, "rate": None}, "delete": {"key": "k"},
    "pause": {"until": NOW, "reason": "r"}, "resume": {"dry_run": True, "pauses": [ID]},
    "dead_letters": {"group": "g", "job": "j", "manifest": "m", "fingerprint": "f",
                     "created_after": NOW, "created_before": NOW},
    "acknowledge": {"note": "n"}, "cancel": {"reason": "r"}, "cancel_manifest": {"reason": "r"},
    "cancel_group": {"reason": "r"}, "works": {"state": "queued", "group": "g", "reason": "x"},
    "runs": {"state": "failed", "group": "g", "job": "j", "worker": "w", "since": NOW,
             "until": NOW, "text": "t"}, "log": {"after": 1},
    "once": {"at": NOW}, "schedule": {"job": "job", "when": manual()},
    "schedule_many": {"job": "job", "when": manual(), "items": [("a", 1)]},
    "backfill": {"since": NOW, "until": NOW, "missed_only": True, "priority": 1, "dry_run": True},
    "change_many": {"action": "run", "group": "g", "labels": {"a": "b"}, "key": "k"},
}  # fmt: skip


def test_every_method_of_the_client_is_checked():
    methods = {
        name
        for name, value in vars(Client).items()
        | {item for base in Client.__mro__ for item in vars(base).items() if callable(item[1])}
        if not name.startswith("_") and callable(value)
    }
    assert methods - {"register"} == set(CALLS)


@pytest.mark.parametrize("method", CALLS)
async def test_the_clients_calls_fit_the_document(method):
    """Every request names an operation of the API and only its parameters."""
    seen = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(409, json={"detail": "enough"})

    transport = httpx.MockTransport(answer)
    async with Client("http://console", transport=transport) as client:
        with pytest.raises(RequestFailed, match="enough"):
            await getattr(client, method)(*CALLS[method], **OPTIONS.get(method, {}))
    [request] = seen
    fitting = [
        names
        for (verb, path), names in document_paths().items()
        if verb == request.method
        and re.fullmatch(re.sub(r"{\w+}", "[^/]+", path), request.url.path)
    ]
    body = json.loads(request.content) if request.content else {}
    sent = {*request.url.params, *body}
    assert any(sent <= names for names in fitting), (request.method, request.url, body)


async def test_the_ledger_is_read_in_pages(world, client):
    await world.scheduler(app_with(205), tick="off")
    checked = await client.ledger(since=datetime(2020, 1, 1, tzinfo=UTC) + timedelta(1))
    assert (checked.manifests, checked.gaps, checked.last) == (205, [], "m-0204")


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({}, "either at= or delay="),
        ({"at": "2027-01-01 00:00"}, "takes a datetime with a zone"),
        ({"delay": -5}, "from 0 to ten years"),
        ({"delay": 1e18}, "write a number of seconds|from 0 to ten years"),
        ({"delay": "soon"}, "write a number of seconds"),
    ],
)
async def test_a_one_shot_without_a_valid_time_is_refused_by_the_client(fields, complaint):
    with pytest.raises(ValueError, match=complaint):
        await Client("http://nowhere:1").once("job", **fields)


async def test_times_outside_the_supported_years_are_refused(world):
    app = App("test")
    app.job("job")(lambda ctx: None)
    app.schedule("hourly", job="job", when=when_made_due())
    await world.scheduler(app)
    async with world.client() as headway:
        for year in (1, 9999):
            with pytest.raises(RequestFailed, match="is not between 1970 and 2199"):
                await headway.preview("hourly", after=datetime(year, 12, 31, tzinfo=UTC))
