"""Pages that change something: required roles, and answers to invalid input."""

from uuid import UUID

ID = UUID(int=7)
CHANGES = [
    f"/runs/{ID}/again",
    "/work/cancel",
    "/dead-letters/change",
    f"/dead-letters/{ID}/retry",
    "/manifests/bulk",
    "/groups/bulk",
    "/workers/drain",
    "/dead-letters/canary",
    f"/dead-letters/canary/{ID}/stop",
]


async def test_a_viewer_changes_nothing(console):
    async with console.signed_in("viewer") as client:
        for path in CHANGES:
            reply = await client.post(path, data={"id": str(ID)})
            assert reply.status_code == 403, path
            assert "needs the role operator" in reply.text, path


WRONG = [
    ("/work/cancel", {}, 422, "nothing is selected"),
    ("/work/cancel", {"id": "seven"}, 422, "invalid id"),
    (f"/runs/{ID}/again", {}, 404, "there is no run"),
    ("/dead-letters/change", {"action": "retry"}, 422, "nothing is selected"),
    ("/dead-letters/change", {"action": "retry-all"}, 422, "names no failure"),
    ("/dead-letters/change", {"action": "burn"}, 422, "unknown action"),
    ("/dead-letters/canary", {}, 422, "names no failure"),
    (f"/dead-letters/canary/{ID}/stop", {}, 503, "is it running?"),
]


async def test_invalid_forms_are_refused_with_the_reason(console):
    async with console.signed_in("operator") as client:
        for path, form, status, words in WRONG:
            reply = await client.post(path, data=form)
            assert (reply.status_code, words in reply.text) == (status, True), (path, reply.text)


WRONG_QUERIES = [
    ("/runs?state=lost", 422, "use 'cancelled' or 'completed'"),
    ("/manifests?state=lost", 422, "use 'blocked' or 'disabled'"),
    ("/events?accepted=maybe", 422, "use true or false"),
    ("/runs?since=yesterday", 422, "invalid time"),
    ("/runs?cursor=nonsense", 422, "invalid cursor"),
    ("/events?work=seven", 422, "use a UUID"),
    (f"/runs/{ID}", 404, "there is no run"),
    (f"/work/{ID}", 404, "knows no work or run"),
    (f"/dead-letters/{ID}", 404, "there is no dead letter"),
    (f"/dead-letters/canary/{ID}", 404, "there is no canary"),
    ("/events/feed?after=x", 422, "expected the number of an event"),
]


async def test_invalid_filters_are_refused_with_the_reason(console):
    async with console.signed_in("viewer") as client:
        for path, status, words in WRONG_QUERIES:
            reply = await client.get(path)
            assert (reply.status_code, words in reply.text) == (status, True), (path, reply.text)
