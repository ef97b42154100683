"""Dead letters: what they keep, and that seeing to one happens once, whatever else goes on."""

import asyncio
import contextlib
import random
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
import pytest_asyncio
from headway import App, Client, every, retry
from headway.client import RequestFailed
from headway_clock import utc_now
from headway_contract import encode, event, subjects
from headway_contract.dispatching import LetterFilter
from headway_contract.work import ManifestPruned, RetryPolicy, WorkQueued
from headway_dispatcher.letter_passes import LetterRetention
from headway_jetstream_kit import Stored
from headway_jetstream_kit.publishing import publish
from headway_postgres_kit import DATABASE_CLOCK
from support.invariants import check_invariants
from support.world import until

ONCE = RetryPolicy(attempts=1)


class Ops:
    """A job that fails until it is mended, work for it, and a client."""

    def __init__(self, world, client: Client) -> None:
        self.world = world
        self.client = client
        self.mended = asyncio.Event()
        self.hold = asyncio.Event()
        self.hold.set()
        self.inputs: list = []
        self.app = App("test")

        @self.app.job("job", group="ops")
        async def job(ctx, given: dict | None = None):
            self.inputs.append(given)
            await self.hold.wait()
            if not self.mended.is_set():
                raise ValueError(f"order {len(self.inputs)} of '{ctx.work}' has no address")
            return "done"

    async def queue(self, **fields) -> UUID:
        work = uuid4()
        given = {"job": "job", "cause": f"test:{work}", "queued_at": utc_now(), "retry": ONCE}
        await self.tell(WorkQueued(work=work, group="ops", **{**given, **fields}))
        return work

    async def tell(self, data) -> None:
        body = encode(event(data, id=uuid4(), source="test", subject="x", time=utc_now()))
        assert isinstance(await publish(self.world.broker, subjects.work("ops"), body), Stored)

    async def letter(self, **fields) -> tuple[UUID, UUID]:
        """Work that has failed for good, and its letter."""
        work = await self.queue(**fields)
        letter = await self.world.until(
            "SELECT id FROM dispatcher.dead_letter WHERE work_id = $1 AND state = 'awaiting'", work
        )
        return work, letter

    async def row(self, work: UUID):
        rows = await self.world.rows("SELECT * FROM dispatcher.work_queue WHERE id = $1", work)
        return rows[0]

    async def until_outcome(self, work: UUID, outcome: str) -> None:
        await self.world.until(
            "SELECT outcome = $2 FROM dispatcher.work_queue WHERE id = $1", work, outcome
        )


@pytest_asyncio.fixture
async def ops(world, nats_url):
    await world.dispatcher()
    async with Client(nats_url, actor="ada") as client:
        made = Ops(world, client)
        await world.worker(made.app, worker_name="w1")
        yield made
        made.hold.set()


async def test_a_letter_keeps_what_failed_and_how(ops):
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
    assert (await ops.client.dead_letter(work)).status == found.status, "found by its work, too"
    # The same failure of other work, with another number and another id in its message.
    _, other = await ops.letter()
    [first, second] = await ops.client.dead_letters(fingerprint=found.status.fingerprint)
    assert {first.dead_letter, second.dead_letter} == {letter, other}
    # What its runs were is in the letter, whatever becomes of their records.
    await ops.world.value("DELETE FROM dispatcher.metadata WHERE work_id = $1", work)
    assert len((await ops.client.dead_letter(letter)).runs) == 2


async def test_lists_are_filtered_and_come_in_pages(ops):
    letters = [(await ops.letter())[1] for _ in range(5)]
    ask = ops.client.dead_letters
    assert [one.dead_letter for one in await ask()] == letters[::-1], "the newest first"
    assert [one.dead_letter for one in await ask(most=2)] == letters[:2:-1]
    await ops.world.value(
        "UPDATE dispatcher.dead_letter SET manifest = 'm' WHERE id = $1", letters[1]
    )
    assert [one.dead_letter for one in await ask(manifest="m")] == [letters[1]]
    assert await ask(group="others") == []
    assert len(await ask(job="job", group="ops")) == 5
    old = utc_now() - timedelta(hours=3)
    await ops.world.value(
        "UPDATE dispatcher.dead_letter SET created_at = $2 WHERE id = $1", letters[4], old
    )
    hour_ago = utc_now() - timedelta(hours=1)
    assert [one.dead_letter for one in await ask(created_before=hour_ago)] == [letters[4]]
    assert len(await ask(created_after=hour_ago)) == 4
    await ops.client.acknowledge(letters[0])
    assert len(await ask()) == 4
    assert [one.dead_letter for one in await ask(state="acknowledged")] == [letters[0]]
    assert len(await ask(state=None)) == 5


async def test_a_retry_begins_a_round_of_its_own_with_the_same_input(ops):
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
    assert [one.attempt for one in (await ops.client.dead_letter(second)).runs] == [1]
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
    await ops.until_outcome(work, "completed")
    assert ops.inputs[-1] == {"order": 8, "new": [1]}
    found = await ops.client.dead_letter(letter)
    assert found.input == {"order": 7, "old": 1}, "the original stays"
    assert [(one.path, one.was, one.now) for one in found.edit[1:2]] == [("/order", 7, 8)]
    assert {one.path for one in found.edit} == {"/order", "/old", "/new"}
    told = await ops.world.value(
        "SELECT data -> 'edit' FROM dispatcher.history"
        " WHERE type = 'headway.dead_letter.retried.v1'"
    )
    assert {one["path"] for one in told} == {"/order", "/old", "/new"}


async def test_an_edited_input_is_for_one_letter_only(ops):
    _, first = await ops.letter()
    _, second = await ops.letter()
    with pytest.raises(RequestFailed, match="for one dead letter"):
        await ops.client.retry(first, second, input={})


@pytest.mark.parametrize("acts", ["retries", "both"])
async def test_it_is_seen_to_once_whoever_asks_at_the_same_time(ops, acts):
    await ops.world.dispatcher()
    work, letter = await ops.letter()
    ops.mended.set()
    calls = [ops.client.retry(letter) for _ in range(5)]
    if acts == "both":
        calls += [ops.client.acknowledge(letter) for _ in range(5)]
    answers = [one.result for [one] in await asyncio.gather(*calls)]
    done = [one for one in answers if one in ("retried", "acknowledged")]
    assert len(done) == 1
    assert set(answers) - set(done) == {f"already_{done[0]}"}
    if done == ["retried"]:
        await ops.until_outcome(work, "completed")
    assert await ops.world.value("SELECT count(*) FROM dispatcher.metadata") == (
        2 if done == ["retried"] else 1
    )
    told = "SELECT count(*) FROM dispatcher.history WHERE type LIKE 'headway.dead_letter.%'"
    assert await ops.world.value(told + " AND type <> 'headway.dead_letter.created.v1'") == 1
    [again] = await ops.client.retry(letter)
    assert "ada" in again.text, "the second is told who did it"
    await check_invariants(ops.world.database)


async def test_what_nobody_knows_is_said(ops):
    [result] = await ops.client.retry(uuid4())
    assert (result.result, "dead-letters list" in result.text) == ("unknown", True)
    [result] = await ops.client.acknowledge(uuid4())
    assert result.result == "unknown"
    with pytest.raises(RequestFailed, match="no dead letter is named"):
        await ops.client.retry()


class TestSlots:
    async def test_while_its_slot_is_taken_it_waits_and_then_runs(self, ops):
        manifest = uuid4()
        work, letter = await ops.letter(manifest_id=manifest, manifest="m")
        ops.mended.set()
        ops.hold.clear()
        other = await ops.queue(manifest_id=manifest, manifest="m")
        await ops.world.until("SELECT count(*) FROM dispatcher.metadata WHERE state='in_progress'")
        [result] = await ops.client.retry(letter)
        assert (result.result, str(other) in result.text) == ("waits", True)
        [again] = await ops.client.retry(letter)
        assert (again.result, "ada" in again.text) == ("already_asked", True)
        [listed] = await ops.client.dead_letters()
        assert (listed.retry_asked_by, listed.waits_for) == ("ada", other)
        assert (await ops.row(work))["state"] == "settled"
        ops.hold.set()
        await ops.until_outcome(work, "completed")
        assert await ops.client.dead_letters() == []
        rows = await ops.world.rows(
            "SELECT work_id, started_at, finished_at FROM dispatcher.metadata ORDER BY started_at"
        )
        assert [row["work_id"] for row in rows] == [work, other, work]
        assert rows[1]["finished_at"] <= rows[2]["started_at"], "one after the other"
        await check_invariants(ops.world.database)

    async def test_it_comes_before_the_next_work_of_its_manifest(self, ops):
        """Otherwise a manifest that fires all the time would never let it in."""
        manifest = uuid4()
        work, letter = await ops.letter(manifest_id=manifest, manifest="m")
        ops.mended.set()
        ops.hold.clear()
        await ops.queue(manifest_id=manifest, manifest="m")
        await ops.world.until("SELECT count(*) FROM dispatcher.metadata WHERE state='in_progress'")
        await ops.client.retry(letter)
        # Nothing but the settling itself may bring it back: the pass that makes good is off.
        for service in ops.world.services:
            await service.end_pass("letters")
        ops.hold.set()
        await ops.until_outcome(work, "completed")

    async def test_an_acknowledgement_or_a_cancel_withdraws_the_wish(self, ops):
        manifest = uuid4()
        letters = [await ops.letter(manifest_id=manifest, manifest="m") for _ in range(2)]
        ops.mended.set()
        ops.hold.clear()
        await ops.queue(manifest_id=manifest, manifest="m")
        await ops.world.until("SELECT count(*) FROM dispatcher.metadata WHERE state='in_progress'")
        answers = await ops.client.retry(letters[0][1], letters[1][1])
        assert [one.result for one in answers] == ["waits", "waits"]
        [away] = await ops.client.acknowledge(letters[0][1], note="by hand")
        assert away.result == "acknowledged"
        cancelled = await ops.client.cancel(letters[1][0])
        assert cancelled.result == "already_settled"
        assert "withdrawn" in cancelled.text
        ops.hold.set()
        await ops.world.until(
            "SELECT NOT EXISTS (SELECT FROM dispatcher.work_queue WHERE state <> 'settled')"
        )
        assert len(ops.inputs) == 3, "neither ran again"
        [left] = await ops.client.dead_letters()
        assert (left.dead_letter, left.retry_asked_at) == (letters[1][1], None)

    async def test_two_letters_of_one_slot_run_one_after_the_other(self, ops):
        manifest = uuid4()
        letters = [await ops.letter(manifest_id=manifest, manifest="m") for _ in range(3)]
        ops.mended.set()
        answers = await ops.client.retry_all(LetterFilter(manifest="m"))
        assert [one.result for one in answers] == ["retried", "waits", "waits"]
        for work, _ in letters:
            await ops.until_outcome(work, "completed")
        overlapping = await ops.world.value(
            "SELECT count(*) FROM dispatcher.metadata AS one JOIN dispatcher.metadata AS other"
            " ON one.run_id < other.run_id AND one.started_at < other.finished_at"
            " AND other.started_at < one.finished_at"
        )
        assert overlapping == 0
        await check_invariants(ops.world.database)

    async def test_retries_race_with_work_for_the_same_slot(self, ops):
        await ops.world.dispatcher()
        manifests = [uuid4() for _ in range(12)]
        letters = [
            await ops.letter(manifest_id=manifest, manifest=f"m{number}")
            for number, manifest in enumerate(manifests)
        ]
        ops.mended.set()
        arrivals = [
            ops.queue(manifest_id=manifest, manifest=f"m{number}")
            for number, manifest in enumerate(manifests)
        ]
        retries = [ops.client.retry(letter) for _, letter in letters]
        mixed = [one for pair in zip(arrivals, retries, strict=True) for one in pair]
        answers = await asyncio.gather(*mixed)
        assert {one.result for [one] in answers[1::2]} <= {"retried", "waits"}
        for work, _ in letters:
            await ops.until_outcome(work, "completed")
        await ops.world.until(
            "SELECT NOT EXISTS (SELECT FROM dispatcher.work_queue WHERE state <> 'settled')"
        )
        outcomes = await ops.world.rows("SELECT DISTINCT outcome FROM dispatcher.work_queue")
        assert {row["outcome"] for row in outcomes} <= {"completed", "coalesced"}
        await check_invariants(ops.world.database)


class TestPrunes:
    async def test_nothing_of_a_pruned_manifest_comes_back(self, ops):
        manifest = uuid4()
        work, letter = await ops.letter(manifest_id=manifest, manifest="m")
        # The tombstone is there and the rows are, too: the moment in between.
        for service in ops.world.services:
            await service.end_pass("prunes")
        await ops.tell(
            ManifestPruned(manifest_id=manifest, manifest="m", group="ops", pruned_at=utc_now())
        )
        await ops.world.until("SELECT count(*) FROM dispatcher.tombstone")
        [result] = await ops.client.retry(letter)
        assert (result.result, "manifest was deleted" in result.text) == ("pruned", True)
        assert (await ops.row(work))["state"] == "settled"
        assert [one.result for one in await ops.client.acknowledge(letter)] == ["pruned"]

    async def test_retries_race_with_prunes(self, ops):
        manifests = [uuid4() for _ in range(10)]
        letters = [
            await ops.letter(manifest_id=manifest, manifest=f"m{number}")
            for number, manifest in enumerate(manifests)
        ]
        pruned = [
            ops.tell(
                ManifestPruned(manifest_id=one, manifest="m", group="ops", pruned_at=utc_now())
            )
            for one in manifests
        ]
        retries = [ops.client.retry(letter) for _, letter in letters]
        mixed = [one for pair in zip(pruned, retries, strict=True) for one in pair]
        answers = await asyncio.gather(*mixed)
        assert {one.result for [one] in answers[1::2]} <= {"retried", "pruned", "unknown"}
        await ops.world.until(
            "SELECT count(*) = 10 FROM dispatcher.tombstone WHERE confirmed_at IS NOT NULL"
        )
        for table in ("work_queue", "dead_letter", "metadata"):
            assert await ops.world.value(f"SELECT count(*) FROM dispatcher.{table}") == 0


class TestMany:
    async def test_all_that_match_and_no_others(self, ops):
        works = [(await ops.letter())[0] for _ in range(4)]
        _, kept = await ops.letter(manifest_id=uuid4(), manifest="m")
        ops.mended.set()
        results = await ops.client.acknowledge_all(LetterFilter(manifest="m"), note="known")
        assert [(one.dead_letter, one.result) for one in results] == [(kept, "acknowledged")]
        results = await ops.client.retry_all(LetterFilter(job="job"))
        assert [one.result for one in results] == ["retried"] * 4
        for work in works:
            await ops.until_outcome(work, "completed")
        note = await ops.client.dead_letter(kept)
        assert (note.status.note, note.status.state) == ("known", "acknowledged")
        assert await ops.client.retry_all(LetterFilter()) == []

    async def test_letters_that_come_about_meanwhile_are_left_for_the_next_time(self, ops):
        """A job that fails again at once must not keep a bulk retry going for ever."""
        for _ in range(3):
            await ops.letter()
        control = ops.client._control
        asked = []

        class OneAtATime:
            async def ask(self, subject, question, answer, **options):
                if subject == subjects.RETRY_REQUEST:
                    asked.append(question)
                    question = type(question)(
                        filter=question.filter, after=question.after, actor="ada", limit=1
                    )
                found = await control.ask(subject, question, answer, **options)
                if subject == subjects.RETRY_REQUEST:
                    [result] = found.results
                    await ops.world.until(
                        "SELECT count(*) FROM dispatcher.dead_letter"
                        " WHERE work_id = $1 AND round = 2",
                        result.work,
                    )
                return found

        async with Client(control=OneAtATime(), actor="ada") as client:
            results = await client.retry_all(LetterFilter())
        assert [one.round for one in results] == [2, 2, 2]
        assert len(asked) == 3

    async def test_a_filter_of_what_is_resolved_is_refused(self, ops):
        with pytest.raises(RequestFailed, match="await somebody"):
            await ops.client.retry_all(LetterFilter(state="retried"))


async def test_resolved_ones_are_forgotten_and_awaiting_ones_never(ops):
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
    retention = LetterRetention(ops.world.database, days=30, clock=DATABASE_CLOCK)
    await retention.run_once()
    left = await ops.world.rows("SELECT id FROM dispatcher.dead_letter")
    assert {row["id"] for row in left} == {letter for _, letter in letters[1:]}, (
        "the recent one, the one whose retry still runs, and the one that nobody has seen to"
    )
    ops.hold.set()
    ops.mended.set()
    await ops.world.until(
        "SELECT NOT EXISTS (SELECT FROM dispatcher.work_queue WHERE state <> 'settled')"
    )


class TestManifests:
    """With the scheduler: what a letter does to its manifest."""

    @pytest.mark.parametrize("retried", [True, False])
    async def test_it_blocks_until_somebody_has_seen_to_it(self, world, nats_url, retried):
        mended = asyncio.Event()
        app = App("test")

        @app.job("job", group="ops")
        @every(hours=1, name="m")
        @retry(attempts=1)
        async def job(ctx):
            if not mended.is_set():
                raise ValueError("boom")

        await world.dispatcher()
        await world.worker(app)
        await world.fire(app)
        letter = await world.until("SELECT blocked_by FROM scheduler.manifest")
        mended.set()
        async with Client(nats_url, actor="ada") as client:
            name = (await client.manifests())[0].external_id
            with pytest.raises(RequestFailed, match=str(letter)):
                await client.trigger(name)
            act = client.retry if retried else client.acknowledge
            [result] = await act(letter)
            assert result.result == ("retried" if retried else "acknowledged")
            await world.until("SELECT blocked_by IS NULL FROM scheduler.manifest")
            await world.until_settled()
            outcome = await world.value("SELECT outcome FROM scheduler.occurrence")
            assert outcome == ("completed" if retried else "dead_lettered")
            assert (await client.trigger(name)).result == "queued"
            await world.until_settled(at_least=2)
        await check_invariants(world.database)

    async def test_a_policy_lets_it_go_on(self, world, nats_url):
        app = App("test")

        @app.job("job", group="ops", on_dead_letter="go_on")
        @every(hours=1, name="m")
        @retry(attempts=1)
        async def job(ctx):
            raise ValueError("boom")

        await world.dispatcher()
        await world.worker(app)
        await world.fire(app)
        await world.until("SELECT last_outcome = 'dead_lettered' FROM scheduler.manifest")
        assert await world.value("SELECT blocked_by FROM scheduler.manifest") is None
        async with Client(nats_url) as client:
            [letter] = await client.dead_letters()
            answer = await client.trigger(letter.manifest)
            assert answer.result == "queued"

            async def two():
                return len(await client.dead_letters(manifest=letter.manifest)) == 2

            await until(two, within=20, what="the second one fails as well")
        await check_invariants(world.database)


@pytest.mark.parametrize("seed", [1, 2])
async def test_whatever_people_do_at_once_two_rounds_never_run_at_once(ops, seed):
    """Work comes, fails, is retried, put away and cancelled, all at the same time."""
    chance = random.Random(seed)
    await ops.world.dispatcher()
    manifests = [(uuid4(), f"m{number}") for number in range(4)]
    works: list[UUID] = []

    async def come() -> None:
        manifest, name = chance.choice(manifests)
        works.append(await ops.queue(manifest_id=manifest, manifest=name))

    async def see_to_letters() -> None:
        for letter in await ops.client.dead_letters(most=3):
            act = chance.choice([ops.client.retry, ops.client.retry, ops.client.acknowledge])
            [result] = await act(letter.dead_letter)
            assert result.result != "unknown"

    async def cancel() -> None:
        # It may name work that the dispatcher has not heard of yet, and nobody else knows it.
        with contextlib.suppress(RequestFailed):
            await ops.client.cancel(chance.choice(works))

    await come()
    for _ in range(12):
        acts = chance.choices([come, see_to_letters, cancel], [6, 5, 1], k=8)
        await asyncio.gather(*(act() for act in acts))
    ops.mended.set()
    settled = "SELECT NOT EXISTS (SELECT FROM dispatcher.work_queue WHERE state <> 'settled')"
    waits = (
        "SELECT NOT EXISTS (SELECT FROM dispatcher.dead_letter WHERE retry_asked_at IS NOT NULL)"
    )
    all_came = "SELECT count(*) = $1 FROM dispatcher.work_queue"
    await ops.world.until(all_came, len(works))
    await ops.world.until(settled)
    while await ops.client.retry_all(LetterFilter()):
        await ops.world.until(waits)
        await ops.world.until(settled)
    overlapping = await ops.world.rows(
        "SELECT one.run_id FROM dispatcher.metadata AS one JOIN dispatcher.metadata AS other"
        " ON one.manifest_id = other.manifest_id AND one.run_id <> other.run_id"
        " AND one.created_at < other.finished_at AND other.created_at < one.finished_at"
    )
    assert overlapping == [], "a manifest with one slot has one live run"
    assert await ops.client.dead_letters() == []
    assert await ops.world.value("SELECT count(*) > 0 FROM dispatcher.dead_letter"), "or it is idle"
    await check_invariants(ops.world.database)
