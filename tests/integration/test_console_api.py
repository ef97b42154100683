"""The HTTP API: requests handed to the services, and what comes back."""

from headway import App, every


def an_app() -> App:
    app = App("shop")

    @app.job("sync", group="ops")
    async def sync(ctx, number: int): ...

    app.schedule("nightly", job="sync", when=every(hours=1), input=1)
    app.schedule("weekly", job="sync", when=every(hours=2), input=2)
    return app


async def test_a_request_is_handed_on_with_the_name_of_who_asks(world, console):
    await world.scheduler(an_app(), tick="off")
    async with console.signed_in("operator") as client:
        reply = await client.patch("/api/v1/manifests/nightly", json={"enabled": False})
        assert (reply.status_code, "disabled" in reply.json()["text"]) == (200, True)
        shown = (await client.get("/api/v1/manifests/nightly")).json()
    assert shown["status"]["enabled"] is False
    sources = await world.rows("SELECT source FROM scheduler.history WHERE subject = 'nightly'")
    assert sources[-1]["source"] == "operator/ada-operator"


async def test_lists_come_in_pages(world, console):
    await world.scheduler(an_app(), tick="off")
    async with console.signed_in("viewer") as client:
        first = (await client.get("/api/v1/manifests", params={"limit": 1})).json()
        assert [one["external_id"] for one in first["items"]] == ["nightly"]
        again = {"limit": 1, "cursor": first["next"]}
        second = (await client.get("/api/v1/manifests", params=again)).json()
        assert [one["external_id"] for one in second["items"]] == ["weekly"]
        assert second["next"] is None


WRONG = [
    ("GET", "/manifests/nobody", {}, 404, "there is no manifest 'nobody'"),
    ("DELETE", "/manifests/nightly", {}, 409, "is declared by the application 'shop'"),
    ("GET", "/manifests?limit=0", {}, 422, "limit: Expected `int` >= 1"),
    ("GET", "/manifests?colour=red", {}, 422, "unknown field `colour`"),
    ("GET", "/manifests?cursor=%23", {}, 422, "this is no cursor"),
    ("GET", "/manifests?limit=1&limit=2", {}, 422, "more than once"),
    ("PATCH", "/manifests/nightly", {"content": b"{"}, 400, "Input data was truncated"),
    ("PATCH", "/manifests/nightly", {"json": {"actor": "eve"}}, 422, "unknown field `actor`"),
    ("GET", "/runs/no-id", {}, 422, "run: Invalid UUID"),
    ("GET", "/runs", {}, 503, "is it running?"),
    ("GET", "/nothing", {}, 404, ""),
    ("PUT", "/runs", {}, 405, ""),
]


async def test_what_is_wrong_is_a_problem(world, console):
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
