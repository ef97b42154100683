"""Dead letters: their content, and that each is resolved exactly once."""

import asyncio
import contextlib
import random
from datetime import timedelta
from uuid import UUID, uuid4

import msgspec
import pytest
from headway.client.client import RequestFailed
from headway_clock import utc_now
from headway_contract.dead_letters import LetterFilter
from headway_contract.work import JobChanged, RetryPolicy
from headway_dispatcher.letters.letters import purge_letters
from support.invariants import check_invariants
from support.tiers import first_in_each_tier


@pytest.mark.breaks_tables("deletes runs, as no clean-up would before their work")
async def test_a_letter_keeps_its_input_and_failures(ops):
    work, letter = await ops.letter(
        input={"order": 7}, retry=RetryPolicy(attempts=2, interval_seconds=0)
    )
    found = await ops.client.dead_letter(letter)
    assert (found.status.work, found.status.round, found.input) == (work, 1, {"order": 7})
    assert [(run.attempt, run.failure.kind) for run in found.runs] == [
        (1, "ValueError"),
        (2, "ValueError"),
    ]
    assert found.runs[0].failure.message.startswith("order 1 of")
    assert "raise ValueError" in found.failure.stack
    assert (await ops.client.dead_letter(work)).status == found.status, "also found by its work"
    # The same failure of other work, with another number and another id in its message.
    _, other = await ops.letter()
    [first, second] = await ops.client.dead_letters(fingerprint=found.status.fingerprint)
    assert {first.dead_letter, second.dead_letter} == {letter, other}
    # The letter keeps its runs even if their rows are deleted.
    await ops.world.value("DELETE FROM dispatcher.metadata WHERE work_id = $1", work)
    assert len((await ops.client.dead_letter(letter)).runs) == 2


@pytest.mark.breaks_tables("gives letters other names and times, to filter by them")
async def test_lists_are_filtered_and_come_in_pages(ops):
    letters = [(await ops.letter())[1] for _ in range(5)]
    ask = ops.client.dead_letters
    assert [letter.dead_letter for letter in await ask()] == letters[::-1], "the newest first"
    assert [letter.dead_letter for letter in await ask(most=2)] == letters[:2:-1]
    await ops.world.value(
        "UPDATE dispatcher.dead_letter SET manifest = 'm' WHERE id = $1", letters[1]
    )
    assert [letter.dead_letter for letter in await ask(manifest="m")] == [letters[1]]
    assert await ask(group="others") == []
    assert len(await ask(job="job", group="ops")) == 5
    old = utc_now() - timedelta(hours=3)
    await ops.world.value(
        "UPDATE dispatcher.dead_letter SET created_at = $2 WHERE id = $1", letters[4], old
    )
    hour_ago = utc_now() - timedelta(hours=1)
    assert [letter.dead_letter for letter in await ask(created_before=hour_ago)] == [letters[4]]
    assert len(await ask(created_after=hour_ago)) == 4
    await ops.client.acknowledge(letters[0])
    assert len(await ask()) == 4
    assert [letter.dead_letter for letter in await ask(state="acknowledged")] == [letters[0]]
    assert len(await ask(state=None)) == 5


async def test_a_retry_begins_a_new_round_with_the_same_input(ops):
    work, letter = await ops.letter(input={"order": 7})
    ops.mended.set()
    [result] = await ops.client.retry(letter)
    assert (result.result, result.work, result.round) == ("retried", work, 2)
    await ops.until_outcome(work, "completed")
    row = await ops.row(work)
    assert (row["round"], row["attempts"], row["runs"]) == (2, 1, 2)
    assert ops.inputs == [{"order": 7}, {"order": 7}]
    found = await ops.client.dead_letter(letter)
    assert (found.status.state, found.status.actor, found.edit) == ("retried", "ada", [])
    history = await ops.world.rows(
        "SELECT source, data FROM dispatcher.history WHERE type = 'headway.dead_letter.retried.v1'"
    )
    assert [(row["source"], row["data"]["round"]) for row in history] == [("operator/ada", 2)]
    assert history[0]["data"]["input"] == {"order": 7}
    assert {"rank", "queued_at", "not_before"} <= history[0]["data"].keys()
    await check_invariants(ops.world.database)


async def test_a_round_that_fails_again_is_a_new_letter(ops):
    work, letter = await ops.letter()
    await ops.client.retry(letter)
    second = await ops.world.until(
        "SELECT id FROM dispatcher.dead_letter WHERE work_id = $1 AND round = 2", work
    )
    assert (await ops.client.dead_letter(work)).status.dead_letter == second
    assert [run.attempt for run in (await ops.client.dead_letter(second)).runs] == [1]
    assert (await ops.client.work(work)).dead_letters == [second, letter]
    await check_invariants(ops.world.database)


async def test_an_edited_input_is_checked_and_kept_as_a_difference(ops):
    work, letter = await ops.letter(input={"order": 7, "old": 1})
    with pytest.raises(RequestFailed, match="no scheduler answers"):
        await ops.client.retry(letter, input={"order": 8})
    await ops.world.scheduler(ops.app)
    with pytest.raises(RequestFailed, match="does not fit job 'job'"):
        await ops.client.retry(letter, input="seven")
    assert (await ops.row(work))["state"] == "settled"
    ops.mended.set()
    [result] = await ops.client.retry(letter, input={"order": 8, "new": [1]})
    assert result.result == "retried"
    assert result.text.endswith("with the edited input")
    await ops.until_outcome(work, "completed")
    assert ops.inputs[-1] == {"order": 8, "new": [1]}
    found = await ops.client.dead_letter(letter)
    assert found.input == {"order": 7, "old": 1}, "the original stays"
    assert [(change.path, change.was, change.now) for change in found.edit[1:2]] == [
        ("/order", 7, 8)
    ]
    assert {change.path for change in found.edit} == {"/order", "/old", "/new"}
    edit = await ops.world.value(
        "SELECT data -> 'edit' FROM dispatcher.history"
        " WHERE type = 'headway.dead_letter.retried.v1'"
    )
    assert {change["path"] for change in edit} == {"/order", "/old", "/new"}


async def test_an_edited_input_is_for_one_letter_only(ops):
    _, first = await ops.letter()
    _, second = await ops.letter()
    with pytest.raises(RequestFailed, match="exactly one dead letter"):
        await ops.client.retry(first, second, input={})


@pytest.mark.parametrize("acts", first_in_each_tier(["both", "retries"]))
async def test_concurrent_requests_resolve_a_letter_once(ops, acts):
    await ops.world.dispatcher()
    work, letter = await ops.letter()
    ops.mended.set()
    calls = [ops.client.retry(letter) for _ in range(5)]
    if acts == "both":
        calls += [ops.client.acknowledge(letter) for _ in range(5)]
    answers = [result.result for [result] in await asyncio.gather(*calls)]
    done = [answer for answer in answers if answer in ("retried", "acknowledged")]
    assert len(done) == 1
    assert set(answers) - set(done) == {f"already_{done[0]}"}
    if done == ["retried"]:
        await ops.until_outcome(work, "completed")
    assert await ops.world.value("SELECT count(*) FROM dispatcher.run") == (
        2 if done == ["retried"] else 1
    )
    events = "SELECT count(*) FROM dispatcher.history WHERE type LIKE 'headway.dead_letter.%'"
    assert await ops.world.value(events + " AND type <> 'headway.dead_letter.created.v1'") == 1
    [again] = await ops.client.retry(letter)
    assert "ada" in again.text, "the second answer names the first actor"
    await check_invariants(ops.world.database)


async def test_a_letter_of_a_retired_job_is_not_retried_until_the_job_returns(ops):
    work, letter = await ops.letter()
    ops.mended.set()
    retired = "SELECT retired = $1 FROM dispatcher.job_limit WHERE name = 'job'"
    await ops.tell(JobChanged(job="job", version=10**9, retired=True))
    await ops.world.until(retired, True)
    [refused] = await ops.client.retry(letter)
    assert refused.result == "job_retired"
    assert "job 'job' is retired" in refused.text
    assert "declare the job again, or acknowledge" in refused.text
    assert (await ops.row(work))["state"] == "settled"
    await ops.tell(JobChanged(job="job", version=10**9 + 1))
    await ops.world.until(retired, False)
    [result] = await ops.client.retry(letter)
    assert result.result == "retried"
    await ops.until_outcome(work, "completed")


async def test_unknown_letters_are_reported(ops):
    [result] = await ops.client.retry(uuid4())
    assert (result.result, "dead-letters list" in result.text) == ("unknown", True)
    [result] = await ops.client.acknowledge(uuid4())
    assert result.result == "unknown"
    with pytest.raises(RequestFailed, match="no dead letter is named"):
        await ops.client.retry()


class TestMany:
    async def test_only_matching_letters_are_resolved(self, ops):
        works = [(await ops.letter())[0] for _ in range(4)]
        _, kept = await ops.letter(manifest_id=uuid4(), manifest="m")
        ops.mended.set()
        results = await ops.client.acknowledge_all(LetterFilter(manifest="m"), note="known")
        assert [(result.dead_letter, result.result) for result in results] == [
            (kept, "acknowledged")
        ]
        results = await ops.client.retry_all(LetterFilter(job="job"))
        assert [result.result for result in results] == ["retried"] * 4
        for work in works:
            await ops.until_outcome(work, "completed")
        note = await ops.client.dead_letter(kept)
        assert (note.status.note, note.status.state) == ("known", "acknowledged")
        assert await ops.client.retry_all(LetterFilter()) == []

    async def test_a_bulk_retry_leaves_new_letters_alone(self, ops, monkeypatch):
        """A job that fails again at once must not extend a bulk retry forever."""
        for _ in range(3):
            await ops.letter()
        console = ops.client._console
        send, requests = console.ask, []

        async def one_at_a_time(method, path, request, answer, **options):
            requests.append(request)
            single = msgspec.structs.replace(request, limit=1)
            found = await send(method, path, single, answer, **options)
            [result] = found.results
            await ops.world.until(
                "SELECT count(*) FROM dispatcher.dead_letter WHERE work_id = $1 AND round = 2",
                result.work,
            )
            return found

        monkeypatch.setattr(console, "ask", one_at_a_time)
        results = await ops.client.retry_all(LetterFilter())
        assert [result.round for result in results] == [2, 2, 2]
        assert len(requests) == 3

    async def test_a_bulk_retry_of_resolved_letters_is_refused(self, ops):
        with pytest.raises(RequestFailed, match="open dead letters"):
            await ops.client.retry_all(LetterFilter(state="retried"))


@pytest.mark.breaks_tables("makes letters old instead of waiting")
async def test_only_resolved_letters_are_purged(ops):
    letters = [(await ops.letter()) for _ in range(4)]
    await ops.client.acknowledge(letters[0][1], letters[1][1])
    ops.hold.clear()
    await ops.client.retry(letters[2][1])
    await ops.world.value(
        "UPDATE dispatcher.dead_letter SET created_at = created_at - interval '1 year'"
    )
    await ops.world.value(
        "UPDATE dispatcher.dead_letter SET resolved_at = resolved_at - interval '31 days'"
        " WHERE id <> $1",
        letters[1][1],
    )
    await purge_letters(ops.world.database, days=30)
    left = await ops.world.rows("SELECT id FROM dispatcher.dead_letter")
    assert {row["id"] for row in left} == {letter for _, letter in letters[1:]}, (
        "the recent one, the one whose retry still runs, and the open one"
    )
    ops.hold.set()
    ops.mended.set()
    await ops.world.until(
        "SELECT NOT EXISTS (SELECT FROM dispatcher.work_queue WHERE state <> 'settled')"
    )


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, 2])
async def test_under_concurrent_actions_two_rounds_never_overlap(ops, seed):
    """Queue, fail, retry, acknowledge and cancel work concurrently."""
    chance = random.Random(seed)
    await ops.world.dispatcher()
    manifests = [(uuid4(), f"m{number}") for number in range(4)]
    # Start with a dead letter, because all actions may run before other work fails.
    first, _ = await ops.letter(manifest_id=manifests[0][0], manifest=manifests[0][1])
    works: list[UUID] = [first]

    async def queue_work() -> None:
        manifest, name = chance.choice(manifests)
        works.append(await ops.queue(manifest_id=manifest, manifest=name))

    async def resolve_letters() -> None:
        for letter in await ops.client.dead_letters(most=3):
            act = chance.choice([ops.client.retry, ops.client.retry, ops.client.acknowledge])
            [result] = await act(letter.dead_letter)
            assert result.result != "unknown"

    async def cancel() -> None:
        # The work may not have reached the dispatcher yet.
        with contextlib.suppress(RequestFailed):
            await ops.client.cancel(chance.choice(works))

    for _ in range(12):
        acts = chance.choices([queue_work, resolve_letters, cancel], [6, 5, 1], k=8)
        await asyncio.gather(*(act() for act in acts))
    ops.mended.set()
    settled = "SELECT NOT EXISTS (SELECT FROM dispatcher.work_queue WHERE state <> 'settled')"
    waits = "SELECT NOT EXISTS (SELECT FROM dispatcher.dead_letter WHERE retry_requested_at IS NOT NULL)"
    all_arrived = "SELECT count(*) = $1 FROM dispatcher.work_queue"
    await ops.world.until(all_arrived, len(works))
    await ops.world.until(settled)
    while await ops.client.retry_all(LetterFilter()):
        await ops.world.until(waits)
        await ops.world.until(settled)
    overlapping = await ops.world.rows(
        "SELECT first.run_id FROM dispatcher.run AS first JOIN dispatcher.run AS other"
        " ON first.manifest_id = other.manifest_id AND first.run_id <> other.run_id"
        " AND first.created_at < other.finished_at AND other.created_at < first.finished_at"
    )
    assert overlapping == [], "a manifest with one slot has one live run"
    assert await ops.client.dead_letters() == []
    assert await ops.world.value(
        "SELECT count(*) > 0 FROM dispatcher.dead_letter WHERE state <> 'awaiting'"
    ), "some letters were resolved"
    await check_invariants(ops.world.database)
