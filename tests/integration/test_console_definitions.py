"""Definitions over the HTTP API: manifests made at run time, files, and applications."""

import re

import pytest
from headway import Client, manual
from headway_errors import Conflict
from support.consoles import FILE, an_app
from support.tiers import first_in_each_tier


async def test_manifests_of_code_are_not_changed_over_the_api(world, console):
    await world.scheduler(an_app(), tick="off")
    async with Client(console.url, token=console.tokens["admin"]) as client:
        with pytest.raises(Conflict, match="nightly"):
            await client.schedule("nightly", job="sync", when=manual(), input=1)
        made = await client.schedule("mine", job="sync", when=manual(), input=1)
        assert (made.owner, made.created) == ("api", ["mine"])
        assert "deleted" in (await client.delete("mine")).text
    sources = await world.rows("SELECT DISTINCT source FROM scheduler.history WHERE subject='mine'")
    assert [row["source"] for row in sources] == ["operator/ada-admin"]


async def test_manifests_are_made_and_changed_at_run_time(world, console):
    await world.scheduler(an_app(), tick="off")
    async with console.signed_in("admin") as client:
        path = "/api/v1/manifests/mine"
        made = await client.put(path, json={"job": "sync", "daily": "03:15", "input": 1})
        assert made.status_code == 200, made.text
        assert made.json()["created"] == ["mine"]
        again = await client.put(path, json={"job": "sync", "daily": "03:15", "input": 1})
        assert again.json()["unchanged"] == 1
        changed = await client.put(path, json={"job": "sync", "every": {"hours": 2}, "input": 2})
        assert changed.json()["moved"] == ["mine"]
        shown = (await client.get(path)).json()
        assert (shown["status"]["owner"], shown["status"]["group"]) == ("api", "ops")
        for body, status, words in (
            ({"job": "sync", "daily": "25:99"}, 422, "25:99"),
            ({"job": "sync", "daily": "03:15", "input": "text"}, 422, "does not fit job 'sync'"),
            ({"job": "nobody", "daily": "03:15"}, 422, "which is not declared"),
            ({"job": "sync", "weekday": "monday"}, 422, "unknown field `weekday`"),
            ({"job": "sync", "daily": 5}, 422, "daily 5 is not valid: use text such as '03:15'"),
            ({"job": "sync", "every": {"hours": "x"}, "priority": 99}, 422, "hours 'x' is not"),
            ({"job": "sync", "every": {"hours": "x"}, "priority": 99}, 422, "priority 99 is not"),
        ):
            reply = await client.put(path, json=body)
            assert (reply.status_code, words in reply.json()["detail"]) == (status, True), (
                reply.text
            )
        mine = await client.put(
            "/api/v1/manifests/nightly", json={"job": "sync", "daily": "03:15", "input": 1}
        )
        assert (mine.status_code, "shop" in mine.json()["detail"]) == (409, True), mine.text


CODES = """
app: shop
generation: 9
jobs:
  sync: {group: ops}
manifests:
  nightly: {job: sync, every: {minutes: 1}, input: 1}
"""


@pytest.mark.parametrize(
    "text", first_in_each_tier([CODES, "app: shop\n"]), ids=["re-timed", "empty"]
)
async def test_a_file_changes_an_application_of_code_only_if_an_admin_takes_it_over(
    world, console, text
):
    await world.scheduler(an_app(), tick="off")
    stored = "SELECT external_id, timing FROM scheduler.manifest WHERE pruning_at IS NULL"
    before = await world.rows(stored)
    async with console.signed_in("operator") as client:
        planned = await client.post("/api/v1/plan/yaml", json={"yaml": text})
        assert "'shop' is declared by its code" in planned.json()["refused"]
        for body in ({"yaml": text}, {"yaml": text, "take_over": True}):
            reply = await client.post("/api/v1/apply/yaml", json=body)
            assert reply.status_code == 403, reply.text
    async with console.signed_in("admin") as client:
        refused = await client.post("/api/v1/apply/yaml", json={"yaml": text})
        assert refused.status_code == 409, refused.text
        assert re.search("'shop' is declared by its code.*--take-over", refused.json()["detail"])
        assert await world.rows(stored) == before
        body = {"yaml": text, "take_over": True, "prune": "delete"}
        taken = await client.post("/api/v1/apply/yaml", json=body)
        assert taken.status_code == 200, taken.text
        assert "'shop' is taken over from its code" in taken.json()["warnings"][0]
        assert await world.rows(stored) != before
        [shop] = (await client.get("/api/v1/apps")).json()["items"]
    assert (shop["name"], shop["source"]) == ("shop", "files")
    assert shop["declared_by"] == "operator/ada-admin"


async def test_only_an_admin_renames_retires_and_gives_back_an_application(world, console):
    await world.scheduler(an_app(), tick="off")
    paths = {"rename": {"to": "store"}, "retire": {}, "give-back": {}}
    async with console.signed_in("operator") as client:
        for path, body in paths.items():
            reply = await client.post(f"/api/v1/apps/shop/{path}", json=body)
            assert reply.status_code == 403, reply.text
    async with console.signed_in("admin") as client:
        for app, path, body, status in (
            ("shop", "rename", {"to": "api"}, 422),
            ("shop", "rename", {"to": "store"}, 200),
            ("shop", "retire", {}, 404),
            ("store", "give-back", {}, 200),
            ("store", "retire", {}, 200),
        ):
            reply = await client.post(f"/api/v1/apps/{app}/{path}", json=body)
            assert reply.status_code == status, reply.text
        assert (await client.get("/api/v1/apps")).json()["items"] == []


async def test_a_file_is_planned_and_applied(world, console):
    await world.scheduler(an_app(), tick="off")
    async with console.signed_in("viewer") as client:
        planned = await client.post("/api/v1/plan/yaml", json={"yaml": FILE, "days": 2})
        assert (planned.json()["created"], len(planned.json()["fires"])) == (["invoices"], 1)
        assert (await client.post("/api/v1/apply/yaml", json={"yaml": FILE})).status_code == 403
        bad = await client.post("/api/v1/plan/yaml", json={"yaml": "app: [\n"})
        assert (bad.status_code, "line" in bad.json()["detail"]) == (422, True)
        named = await client.post("/api/v1/plan/yaml", json={"yaml": "/etc/passwd.yaml"})
        assert (named.status_code, "cannot be read" in named.json()["detail"]) == (422, False)
    async with console.signed_in("admin") as client:
        applied = await client.post("/api/v1/apply/yaml", json={"yaml": FILE})
        assert applied.json()["created"] == ["invoices"]


async def test_a_plan_counts_the_fire_times_that_it_does_not_show(console, world):
    await world.scheduler(tick="off")
    async with console.signed_in("operator") as client:
        page = await client.post("/plan", data={"text": FILE, "days": "30"})
        assert page.text.count("appears</span>") == 20
        assert "… and 10 more." in page.text
        page = await client.post("/plan", data={"text": FILE, "days": "7"})
        assert page.text.count("appears</span>") == 7
        assert " more." not in page.text
