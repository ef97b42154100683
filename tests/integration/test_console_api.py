"""The HTTP API: requests, responses and errors."""

import asyncio
from uuid import UUID

import pytest
from headway import Client, manual
from headway_console.api import ENDPOINTS
from headway_console.reading.lists import Place
from headway_errors import Conflict, Invalid, NotFound, RequestFailed, TooLarge, Unavailable
from support.consoles import FILE, an_app
from support.letters import Ops


async def test_a_request_carries_the_name_of_its_user(world, console):
    await world.scheduler(an_app(), tick="off")
    async with console.signed_in("operator") as client:
        reply = await client.patch("/api/v1/manifests/nightly", json={"enabled": False})
        assert (reply.status_code, "disabled" in reply.json()["text"]) == (200, True)
        shown = (await client.get("/api/v1/manifests/nightly")).json()
        [entry, *_] = (await client.get("/api/v1/audit", params={"people": True})).json()["items"]
    assert (entry["actor"], entry["target"]) == ("ada-operator", "nightly")
    assert shown["status"]["enabled"] is False
    sources = await world.rows("SELECT source FROM scheduler.history WHERE subject = 'nightly'")
    assert sources[-1]["source"] == "operator/ada-operator"


async def test_lists_come_in_pages(world, console):
    await world.scheduler(an_app(), tick="off")
    async with console.signed_in("viewer") as client:
        first = (await client.get("/api/v1/manifests", params={"limit": 1})).json()
        assert [manifest["external_id"] for manifest in first["items"]] == ["nightly"]
        again = {"limit": 1, "cursor": first["next"]}
        second = (await client.get("/api/v1/manifests", params=again)).json()
        assert [manifest["external_id"] for manifest in second["items"]] == ["weekly"]
        assert second["next"] is None


GROUPS, NO_RUN = (Place(of, None, "a").cursor() for of in ("groups", "runs"))
WRONG = [
    ("GET", "/manifests/nobody", {}, 404, "there is no manifest 'nobody'"),
    ("DELETE", "/manifests/nightly", {}, 409, "is declared by the application 'shop'"),
    ("GET", "/manifests?limit=0", {}, 422, "limit: Expected `int` >= 1"),
    ("GET", "/manifests?colour=red", {}, 422, "unknown field `colour`"),
    ("GET", "/manifests?cursor=%23", {}, 422, "invalid cursor"),
    ("GET", "/enqueued?cursor=%23", {}, 422, "invalid cursor"),
    ("GET", "/enqueued?cursor=bm9wZQ", {}, 422, "invalid cursor"),
    ("GET", f"/runs?cursor={GROUPS}", {}, 422, "another list"),
    ("GET", f"/runs?cursor={NO_RUN}", {}, 422, "start without"),
    ("GET", "/events?since=0", {}, 422, "since: invalid time '0'"),
    ("GET", "/events?since=2027-03-28T03:15:00", {}, 422, "since: "),
    ("POST", "/resume", {"json": {"manifests": ["a\x00"]}}, 422, "manifests"),
    ("POST", "/resume", {"headers": {"Idempotency-Key": "a b"}}, 422, "without spaces"),
    ("GET", "/events?accepted=null", {}, 422, "never null"),
    ("GET", "/manifests?limit=1&limit=2", {}, 422, "more than once"),
    ("PATCH", "/manifests/nightly", {"content": b"{"}, 400, "Input data was truncated"),
    ("PATCH", "/manifests/nightly", {"json": {"actor": "eve"}}, 422, "unknown field `actor`"),
    ("GET", "/runs/no-id", {}, 422, "run: Invalid UUID"),
    ("GET", f"/work/{UUID(int=0)}/explain", {}, 503, "is it running?"),
    ("GET", "/nothing", {}, 404, ""),
    ("PUT", "/runs", {}, 405, ""),
    ("PUT", "/manifests/m", {"json": {}}, 422, "job is missing: use text"),
    ("PUT", "/manifests/m", {"json": {"job": "sync", "colour": 1}}, 422, "unknown field `colour`"),
    ("PUT", "/manifests/m", {"json": {"job": [], "manual": True}}, 422, "job [] is not valid"),
    ("PUT", "/manifests/m", {"json": [1]}, 422, "Expected `object`"),
]


async def test_every_error_is_a_problem_document(world, console):
    await world.scheduler(an_app(), tick="off")
    async with console.signed_in("admin") as client:
        for method, path, sent, status, words in WRONG:
            reply = await client.request(method, f"/api/v1{path}", **sent)
            called = f"{method} {path}: {reply.text}"
            assert reply.status_code == status, called
            assert reply.headers["content-type"] == "application/problem+json", called
            problem = reply.json()
            assert problem["status"] == status
            assert words in problem.get("detail", ""), called
            assert problem["type"].startswith("urn:headway:problem:")
            assert problem["title"]


async def test_all_problems_of_a_manifest_or_a_body_are_reported_at_once(world, console):
    await world.scheduler(an_app(), tick="off")
    bad = {"cron": "61 * * * *", "priority": 99, "timeout": -1, "retry": {"attempts": 0}}
    async with console.signed_in("admin") as client:
        put = await client.put("/api/v1/manifests/m", json={"job": "sync", **bad})
        patched = await client.patch(
            "/api/v1/manifests/nightly", json={"attempts": 0, "interval_seconds": -1}
        )
    problems = put.json()["detail"].splitlines()
    assert (put.status_code, len(problems)) == (422, 4)
    for words in ("'61 * * * *'", "priority 99", "timeout -1", "attempts 0"):
        assert sum(words in line for line in problems) == 1, problems
    assert patched.status_code == 422
    assert patched.json()["detail"].splitlines() == [
        "attempts 0 is not valid: use a whole number from 1 to 1000000",
        "interval_seconds -1 is not valid: use a number of seconds from 0 to 316224000",
    ]


CALLS = [
    (lambda client: client.manifest("nobody"), NotFound),
    (lambda client: client.cancel_group("nobody"), NotFound),
    (lambda client: client.trigger("nightly", input="no number"), Invalid),
    (lambda client: client.enqueue("sync", input="no number"), Invalid),
    (lambda client: client.enqueue("nobody"), NotFound),
    (lambda client: client.delete("nightly"), Conflict),
    (lambda client: client.trigger("nightly", key="k", input=2), Conflict),
    (lambda client: client.run(UUID(int=0)), NotFound),
    (lambda client: client.cancel(UUID(int=0)), Unavailable),
    (lambda client: client.trigger("nightly", input=["x" * 1_100_000]), TooLarge),
]
STATUSES = {NotFound: 404, Invalid: 422, Conflict: 409, Unavailable: 503, TooLarge: 413}


async def test_the_kind_of_a_failure_reaches_the_client(world, console):
    await world.scheduler(an_app(), tick="off")
    seen: list[int] = []
    async with Client(console.url, token=console.tokens["admin"]) as client:
        client._console._client.event_hooks["response"].append(note_status(seen))
        await client.trigger("nightly", key="k")
        seen.clear()
        for call, kind in CALLS:
            with pytest.raises(RequestFailed) as failed:
                await call(client)
            assert failed.value.kind is kind.kind, failed.value
    assert seen == [STATUSES[kind] for _, kind in CALLS]


def note_status(seen):
    async def note(reply):
        seen.append(reply.status_code)
        again = "retry-after" in reply.headers
        assert again == (reply.status_code in (503, 504))

    return note


async def test_the_same_key_triggers_once(world, console):
    await world.scheduler(an_app(), tick="off")
    path = "/api/v1/manifests/nightly/trigger"
    key = {"Idempotency-Key": "deploy-7"}
    async with console.signed_in("operator") as client:
        first = (await client.post(path, headers=key, json={"input": 5})).json()
        again = (await client.post(path, headers=key, json={"input": 5})).json()
        other = await client.post(path, headers=key, json={"input": 6})
        both = await client.post(path, headers=key, json={"key": "another"})
    assert (first["result"], again["result"]) == ("queued", "known")
    assert first["work"] == again["work"]
    assert (other.status_code, "with other parameters" in other.json()["detail"]) == (409, True)
    assert both.status_code == 422
    assert await world.value("SELECT count(*) FROM scheduler.work") == 1


CHANGES = [
    ("/work/{work}/cancel", {"reason": "a"}, {"reason": "b"}),
    ("/manifests/nightly/cancel", {"reason": "a"}, {"reason": "b"}),
    ("/groups/ops/cancel", {"reason": "a"}, {"reason": "b"}),
    ("/work/cancel", {"ids": ["{work}"]}, {"ids": []}),
    ("/pause", {"group": "ops"}, {"all": True}),
    ("/resume", {"group": "ops"}, {"all": True}),
    ("/dead-letters/retry", {"filter": {"group": "ops"}, "limit": 1}, {"filter": {}}),
    ("/dead-letters/acknowledge", {"filter": {"job": "sync"}}, {"filter": {}}),
    ("/apply/yaml", {"yaml": FILE}, {"yaml": FILE, "prune": "keep"}),
]


async def test_the_same_key_repeats_the_first_answer(world, console):
    app = an_app()
    await world.scheduler(app, tick="off")
    await world.dispatcher()
    async with console.signed_in("admin") as client:
        work = (await client.post("/api/v1/manifests/weekly/trigger")).json()["work"]
        for template, given, other in CHANGES:
            path, body = template.replace("{work}", work), _filled(given, work)
            headers = {"Idempotency-Key": f"key:{path}"}
            first = await client.post(f"/api/v1{path}", json=body, headers=headers)
            assert first.status_code == 200, f"{path}: {first.text}"
            audited = await world.value("SELECT count(*) FROM scheduler.history")
            again = await client.post(f"/api/v1{path}", json=body, headers=headers)
            assert (again.status_code, again.json()) == (200, first.json()), path
            assert await world.value("SELECT count(*) FROM scheduler.history") == audited, path
            clash = await client.post(f"/api/v1{path}", json=other, headers=headers)
            detail = clash.json()["detail"]
            assert (clash.status_code, "other parameters" in detail) == (409, True), clash.text
    await world.until_settled()


def _filled(body, work):
    return {
        name: [work if entry == "{work}" else entry for entry in value]
        if isinstance(value, list)
        else value
        for name, value in body.items()
    }


def test_every_post_that_changes_something_takes_a_key():
    questions = {"plan", "plan_yaml", "check_input", "stop_canary", "test_notification"}
    # A backfill sent again queues only occurrences that were not backfilled before.
    idempotent = {"backfill"}
    posts = [endpoint for endpoint in ENDPOINTS if endpoint.method == "POST"]
    assert {endpoint.name for endpoint in posts if not endpoint.takes_key} == questions | idempotent


@pytest.mark.thorough
async def test_a_second_retry_with_a_key_takes_no_further_letters(world, console):
    ops = Ops(world, Client(console.url))
    await world.serve(ops.app)
    for _ in range(3):
        await ops.letter()
    ops.mended.set()
    body = {"filter": {}, "limit": 1}
    key = {"Idempotency-Key": "one"}
    async with console.signed_in("operator") as client:
        replies = await asyncio.gather(
            *(client.post("/api/v1/dead-letters/retry", json=body, headers=key) for _ in range(4))
        )
        bad = await client.post(
            "/api/v1/dead-letters/retry", json={}, headers={"Idempotency-Key": "two"}
        )
        same = await client.post(
            "/api/v1/dead-letters/retry", json=body, headers={"Idempotency-Key": "two"}
        )
    assert len({reply.text for reply in replies}) == 1
    assert (bad.status_code, same.status_code) == (422, 200), "a refusal is not stored"
    states = await world.rows("SELECT state FROM dispatcher.dead_letter ORDER BY created_at")
    assert [row["state"] for row in states].count("awaiting") == 1
    await world.until_settled()


async def test_pages_are_complete_while_entries_arrive(world, console):
    ops = Ops(world, Client(console.url))
    await world.dispatcher()
    first = [await ops.queue() for _ in range(5)]
    await world.until("SELECT count(*) = 5 FROM dispatcher.work_queue")
    seen, cursor = [], None
    async with console.signed_in("viewer") as client:
        while True:
            query = {"limit": 2, "group": "ops", "job": "job", "cursor": cursor}
            sent = {name: value for name, value in query.items() if value is not None}
            page = (await client.get("/api/v1/work", params=sent)).json()
            seen += [item["work"] for item in page["items"]]
            cursor = page["next"]
            if cursor is None:
                break
            late = await ops.queue()
            await world.until("SELECT id FROM dispatcher.work_queue WHERE id = $1", late)
        none = (await client.get("/api/v1/work", params={"group": "ops", "job": "x"})).json()
    assert sorted(seen) == sorted(map(str, first))
    assert none["items"] == []


async def test_pages_of_entries_with_equal_times_are_complete(world, console):
    await world.declare(an_app())
    await world.value("SELECT count(headway.enqueue('sync')) FROM generate_series(1, 5)")
    await world.value("UPDATE scheduler.enqueued SET enqueued_at = now()")
    seen, cursor = [], {}
    async with console.signed_in("viewer") as client:
        while cursor is not None:
            page = (await client.get("/api/v1/enqueued", params={"limit": 2, **cursor})).json()
            seen += [item["work"] for item in page["items"]]
            cursor = {"cursor": page["next"]} if page["next"] else None
    assert len(seen) == len(set(seen)) == 5


async def test_lists_need_no_other_service(world, console):
    app = an_app()
    await world.run(app, worker_name="w1")
    await world.until_settled(at_least=2)
    await world.stop()
    world.services.clear()
    async with console.signed_in("viewer") as client:

        async def items(path, **query):
            reply = await client.get(f"/api/v1{path}", params=query)
            assert reply.status_code == 200, reply.text
            return reply.json()["items"]

        assert [
            manifest["external_id"] for manifest in await items("/manifests", text="night")
        ] == ["nightly"]
        assert len(await items("/runs", manifest="nightly", state="completed")) == 1
        [run] = await items("/runs", manifest="weekly")
        assert [item["run"] for item in await items("/runs", work=run["work"])] == [run["run"]]
        assert await items("/runs", manifest="nobody") == []
        assert [item["outcome"] for item in await items("/work", state="settled", job="sync")] == [
            "completed",
            "completed",
        ]
        assert [item["name"] for item in await items("/groups")] == ["ops"]
        assert [item["name"] for item in await items("/jobs")] == ["sync"]
        assert await items("/dead-letters") == await items("/failures") == []
        assert len(await items("/manifests/nightly/occurrences")) == 1
        started = await items("/events", type=["run.started", "run.completed"], run=run["run"])
        assert {event["type"] for event in started} == {
            "headway.run.started.v1",
            "headway.run.completed.v1",
        }
        for path, words in (
            ("/manifests?label=red", "is not key=value"),
            ("/runs?cursor=x", "invalid cursor"),
            ("/manifests/nobody/occurrences", "no manifest 'nobody'"),
        ):
            assert words in (await client.get(f"/api/v1{path}")).json()["detail"]


async def test_a_client_reads_and_changes_over_http(world, console, monkeypatch):
    monkeypatch.setattr("headway.client.http_control._PAGE", 1)
    app = an_app()
    await world.run(app, worker_name="w1")
    await world.until_settled(at_least=2)
    async with Client(console.url, token=console.tokens["operator"]) as client:
        assert len(await client.manifests()) == len(app.definitions().manifests)
        assert [group.name for group in await client.groups()] == [
            group.group for group in await client.occupancy()
        ]
        assert [worker.worker for worker in await client.workers()] == ["w1"]
        [work, _] = await client.works(state="settled")
        assert (await client.work(work.work)).status == work
        cancelled = await client.cancel(work.work)
        assert cancelled.result == "already_settled"
        with pytest.raises(NotFound, match="there is no manifest 'nobody'"):
            await client.manifest("nobody")
        with pytest.raises(
            RequestFailed, match="has the role operator, and this needs the role admin"
        ):
            await client.schedule("x", job="sync", when=manual(), input=1)
    async with Client(console.url, token="wrong") as stranger:
        with pytest.raises(RequestFailed, match="does not know you: unknown token"):
            await stranger.manifests()
    async with Client("http://127.0.0.1:1") as nowhere:
        with pytest.raises(Unavailable, match="is its console running"):
            await nowhere.manifests()
