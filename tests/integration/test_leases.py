"""Claims, fences and lease questions, seen from the wire."""

import asyncio
import os
from uuid import uuid4

import msgspec
import pytest
from headway_clock import utc_now
from headway_contract import subjects
from headway_contract.lifecycle import (
    Activation,
    LeaseClaimed,
    RunActivated,
    RunCompleted,
    RunFailed,
    RunStarted,
)
from headway_contract.worker_protocol import LogLine, Progress
from headway_jetstream_kit.publish import publish
from support.invariants import check_invariants
from support.tiers import first_in_each_tier

pytestmark = pytest.mark.thorough


async def test_of_many_rivals_one_claims_and_all_learn_it(desk):
    rivals = [desk.lease(f"w{number}") for number in range(8)]
    claims = await asyncio.gather(*(rival.claim() for rival in rivals))
    assert sorted(claims) == ["gone"] * 7 + ["mine"]
    winner = f"w{claims.index('mine')}"
    assert (await desk.ask(winner)).answer == "mine"
    assert (await desk.ask("somebody-else")).answer == "another"
    assert (await desk.ask(winner, nonce="restarted")).answer == "another"


async def test_a_claim_whose_reply_was_lost_is_found_to_be_mine(desk):
    assert await desk.lease("w1").claim() == "mine"
    again = desk.lease("w1")
    assert await again.claim() == "mine"
    done = again.event(RunCompleted(**again.credentials, run=desk.run))
    assert await again.publish(done) == "stored"
    await desk.world.until("SELECT count(*) FROM dispatcher.run WHERE state = 'completed'")
    await check_invariants(desk.world.database)


async def test_an_outcome_whose_reply_was_lost_is_not_published_twice(desk):
    lease = desk.lease("w1")
    await lease.claim()
    done = lease.event(RunCompleted(**lease.credentials, run=desk.run, output=1))
    before = lease._sequence
    assert await lease.publish(done) == "stored"
    lease._sequence = before
    assert await lease.publish(done) == "stored"
    answer = await desk.ask("w1")
    assert answer.stored == [done.id]
    await desk.world.until("SELECT count(*) FROM dispatcher.run WHERE state = 'completed'")
    assert [kind for kind, _ in await desk.history()].count("run.completed") == 1


async def test_the_answers_before_a_claim_and_after_the_end(desk):
    assert (await desk.ask("w1")).answer == "nothing_stored"
    unknown = desk.lease("w1")
    desk.order, order = msgspec.structs.replace(desk.order, lease=uuid4()), desk.order
    assert (await desk.ask("w1")).answer == "ended", "the lease is unknown"
    desk.order = order
    await unknown.claim()
    await unknown.publish(unknown.event(RunCompleted(**unknown.credentials, run=desk.run)))
    await desk.world.until("SELECT count(*) FROM dispatcher.lease WHERE ended_at IS NOT NULL")
    answer = await desk.ask("w2")
    assert (answer.answer, answer.ended_runs) == ("ended", [desk.run])
    assert await desk.lease("w2").claim() == "gone"


async def test_when_the_stream_lost_the_lease_its_owner_republishes_all_events(desk):
    lease = desk.lease("w1")
    await lease.claim()
    await desk.world.until("SELECT count(*) FROM dispatcher.run WHERE state = 'in_progress'")
    await desk.world.broker.api(f"STREAM.PURGE.{subjects.EVENTS_STREAM}")
    done = lease.event(RunCompleted(**lease.credentials, run=desk.run))
    assert await lease.publish(done) == "stored"
    await desk.world.until("SELECT count(*) FROM dispatcher.run WHERE state = 'completed'")
    kinds = [kind for kind, _ in await desk.history()]
    assert kinds == ["run.dispatched", "lease.claimed", "run.started", "run.completed"]
    await check_invariants(desk.world.database)


async def test_a_finished_lease_restores_only_what_the_stream_lost(desk):
    await desk.world.services[0].end_pass("projector")
    lease = desk.lease("w1")
    await lease.claim()
    await lease.publish(lease.event(RunCompleted(**lease.credentials, run=desk.run)))
    lease.forget_runs()
    sequence = lease._sequence
    assert await lease.restore()
    assert lease._sequence == sequence, "nothing is missing"
    await desk.world.broker.api(f"STREAM.PURGE.{subjects.EVENTS_STREAM}")
    assert await lease.restore()
    assert lease._sequence == sequence + 1, "claim, start and outcome go in one message"
    await desk.world.services[0].stop()
    assert not await lease.restore(), "nobody answers"
    await desk.world.dispatcher(orphan_timeout_seconds=600)
    await desk.world.until("SELECT count(*) FROM dispatcher.metadata WHERE state = 'completed'")
    await check_invariants(desk.world.database)


async def test_an_event_whose_reply_was_lost_is_republished_with_the_others(desk):
    await desk.world.services[0].end_pass("projector")
    lease = desk.lease("w1")
    await lease.claim()
    woke = lease.event(
        RunActivated(**lease.credentials, run=desk.run, activations=[Activation(manifest="child")])
    )
    sequence, published = lease._sequence, list(lease._published)
    assert await lease.publish(woke) == "stored"
    lease._sequence, lease._published = sequence, published
    assert await lease.publish(woke) == "stored", "only the reply was lost"
    await desk.world.broker.api(f"STREAM.PURGE.{subjects.EVENTS_STREAM}")
    done = lease.event(RunCompleted(**lease.credentials, run=desk.run))
    assert await lease.publish(done) == "stored"
    await desk.world.dispatcher(orphan_timeout_seconds=600)
    await desk.world.until(
        "SELECT count(*) FROM dispatcher.run WHERE state = 'completed'", within=45
    )
    assert ("run.activated", None) in await desk.history()
    await check_invariants(desk.world.database)


async def test_when_the_stream_went_back_its_owner_republishes_the_missing_events(desk):
    await desk.world.services[0].end_pass("projector")
    lease = desk.lease("w1")
    await lease.claim()
    woke = RunActivated(
        **lease.credentials, run=desk.run, activations=[Activation(manifest="child")]
    )
    assert await lease.publish(lease.event(woke)) == "stored"
    # The claim is still stored; the event after it is lost and was not projected.
    await desk.world.broker.api(
        f"STREAM.MSG.DELETE.{subjects.EVENTS_STREAM}", {"seq": lease._sequence}
    )
    done = lease.event(RunCompleted(**lease.credentials, run=desk.run))
    assert await lease.publish(done) == "stored"
    await desk.world.dispatcher(orphan_timeout_seconds=600)
    await desk.world.until(
        "SELECT count(*) FROM dispatcher.run WHERE state = 'completed'", within=45
    )
    kinds = [kind for kind, refusal in await desk.history() if refusal is None]
    assert kinds.count("run.activated") == kinds.count("run.completed") == 1
    await check_invariants(desk.world.database)


async def test_a_body_that_another_process_began_as_well_is_counted(desk):
    lease = desk.lease("w1")
    await lease.claim()
    await desk.world.until("SELECT claimed_by IS NOT NULL FROM dispatcher.lease")
    await desk.force("w2", RunStarted(**desk.rights(nonce="n2"), run=desk.run))
    await desk.force("w3", RunStarted(**desk.rights(nonce="n3", token="guess"), run=desk.run))
    await desk.world.until(
        "SELECT count(*) = 6 FROM dispatcher.history WHERE lease_id = $1", desk.order.lease
    )
    assert await desk.world.value("SELECT begun_elsewhere FROM dispatcher.run") == 1
    doubts = await desk.world.rows(
        "SELECT data FROM dispatcher.history WHERE type = 'headway.run.in_doubt.v1'"
    )
    assert [row["data"]["begun_elsewhere"] for row in doubts] == [1]
    await check_invariants(desk.world.database)


async def test_events_may_arrive_in_any_order_and_any_number_of_times(desk):
    ids = [uuid4() for _ in range(3)]
    words = [
        RunCompleted(**desk.rights(), run=desk.run, output={"a": [1]}),
        RunStarted(**desk.rights(), run=desk.run),
        LeaseClaimed(**desk.rights(), host="here"),
    ]
    for _ in range(3):
        for word, event_id in zip(words, ids, strict=True):
            await desk.force("w1", word, event_id=event_id)
    await desk.world.until(
        "SELECT count(*) = 4 FROM dispatcher.history WHERE lease_id = $1", desk.order.lease
    )
    row = (await desk.world.rows("SELECT * FROM dispatcher.run"))[0]
    assert (row["state"], row["worker"], row["host"]) == ("completed", "w1", "here")
    assert row["started_at"] is not None
    await check_invariants(desk.world.database)


async def test_a_dead_letter_names_the_code_version_that_ran(desk):
    await desk.restart("n1", "v1")
    await desk.lease("w1").claim()
    await desk.world.until("SELECT claimed_by IS NOT NULL FROM dispatcher.lease")
    await desk.restart("n2", "v2")
    await desk.force("w1", desk.failed())
    await desk.settled()
    [letter] = await desk.world.rows("SELECT code_version FROM dispatcher.dead_letter")
    assert letter["code_version"] == "v1"
    query = "SELECT data ->> 'code_version' FROM dispatcher.history WHERE type LIKE '%.created.v1'"
    assert await desk.world.value(query) == "v1"


async def test_a_dead_letter_does_not_take_the_code_version_of_another_process(desk):
    await desk.restart("n2", "v2")
    await desk.lease("w1").claim()
    await desk.force("w1", desk.failed())
    await desk.settled()
    assert await desk.world.value("SELECT code_version FROM dispatcher.dead_letter") == ""


async def test_late_events_of_a_run_reach_its_dead_letter(desk):
    await desk.force("w1", desk.failed())
    await desk.settled()
    [run] = await desk.world.value("SELECT runs FROM dispatcher.dead_letter")
    assert (run["host"], run["started_at"]) == (None, None)
    await desk.force("w1", RunStarted(**desk.rights(), run=desk.run))
    await desk.force("w1", LeaseClaimed(**desk.rights(), host="here"))
    await desk.world.until("SELECT count(*) FROM dispatcher.lease WHERE host = 'here'")
    [run] = await desk.world.value("SELECT runs FROM dispatcher.dead_letter")
    assert (run["worker"], run["host"]) == ("w1", "here")
    assert run["started_at"] is not None
    await check_invariants(desk.world.database)


async def test_late_events_of_a_run_reach_a_dead_letter_that_is_being_created(desk):
    """Another dispatcher has locked the work and has already read its runs."""
    await desk.force("w1", desk.failed())
    await desk.settled()
    await desk.world.value("CREATE TABLE made AS TABLE dispatcher.dead_letter")
    await desk.world.value("DELETE FROM dispatcher.dead_letter")
    async with desk.world.database.transaction() as connection:
        await connection.execute("SELECT FROM dispatcher.work_queue FOR UPDATE")
        await connection.execute("INSERT INTO dispatcher.dead_letter TABLE made")
        await desk.force("w1", RunStarted(**desk.rights(), run=desk.run))
        await desk.world.until(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            " AND datname = current_database()"
        )
    await desk.world.until("SELECT started_at IS NOT NULL FROM dispatcher.run")
    [run] = await desk.world.value("SELECT runs FROM dispatcher.dead_letter")
    assert run["started_at"] is not None
    await check_invariants(desk.world.database)


async def test_forged_late_and_rival_events_are_refused_and_kept(desk):
    lease = desk.lease("w1")
    await lease.claim()
    await desk.force("w1", RunCompleted(**desk.rights(token="guess"), run=desk.run))
    await desk.force("w2", RunCompleted(**desk.rights(nonce="n2"), run=desk.run))
    await desk.force("w1", RunCompleted(**desk.rights(nonce="n2"), run=desk.run))
    await desk.force("w1", RunCompleted(**desk.rights(), run=uuid4()))
    await desk.force("w1", RunCompleted(**desk.rights(), run=desk.run, output="first"))
    await desk.force("w1", RunCompleted(**desk.rights(), run=desk.run, output="second"))
    await desk.world.until(
        "SELECT count(*) = 9 FROM dispatcher.history WHERE lease_id = $1", desk.order.lease
    )
    assert [refusal for _, refusal in await desk.history()] == [
        None,
        None,
        None,
        "wrong_token",
        "not_the_claimant",
        "not_the_claimant",
        "unknown_run",
        None,
        "run_ended",
    ]
    assert await desk.world.value("SELECT output FROM dispatcher.run") == "first"
    await check_invariants(desk.world.database)


async def test_an_unreadable_message_is_kept_with_its_bytes_and_the_flow_continues(desk):
    subject = subjects.event(desk.order.lease, "w1")
    bodies = [b"", b"rubbish", b"\xff\xfe", os.urandom(200), b'{"specversion":"1.0"}', b"[" * 2000]
    for body in bodies:
        await publish(desk.world.broker, subject, body, headers={"Status": "404"})
    await desk.world.until("SELECT count(*) = 6 FROM dispatcher.rejected")
    rows = await desk.world.rows("SELECT * FROM dispatcher.rejected")
    assert {row["subject"] for row in rows} == {subject}
    assert sorted(row["body"] for row in rows) == sorted(bodies)
    await desk.force("w1", RunCompleted(**desk.rights(), run=desk.run))
    await desk.world.until("SELECT count(*) FROM dispatcher.run WHERE state = 'completed'")
    await check_invariants(desk.world.database, rejected=len(bodies))


async def test_an_output_that_the_database_refuses_is_put_aside_alone(desk):
    """The projector finds it by bisection, tries it five times, then stores it raw."""
    await desk.world.value(
        "ALTER TABLE dispatcher.metadata"
        " ADD CONSTRAINT refused CHECK (output IS DISTINCT FROM '\"refused\"')"
    )
    await desk.force("w1", RunCompleted(**desk.rights(), run=desk.run, output="refused"))
    await desk.force("w1", LeaseClaimed(**desk.rights(), host="here"))
    await desk.world.until("SELECT count(*) FROM dispatcher.lease WHERE host = 'here'")
    await desk.world.until("SELECT count(*) FROM dispatcher.rejected", within=40)


TEXTS = [(rb"a\u0000b", "a\\0b"), (rb"a\ud800b", "a\ufffdb"), (b"a\xffb", "a\ufffdb")]


@pytest.mark.parametrize(("text", "shown"), first_in_each_tier(TEXTS))
async def test_a_failure_with_text_that_cannot_be_stored_settles_its_run(desk, text, shown):
    """A worker in another language passes the job's text on byte for byte."""
    failure = {"kind": "TEXT", "message": "TEXT", "stack": "TEXT", "kinds": ["TEXT"]}
    failed = RunFailed(**desk.rights(), run=desk.run, failure={**failure, "retryable": False})
    claimed = LeaseClaimed(**desk.rights(), host="TEXT")
    await desk.force_raw("w1", text, claimed, failed)
    row = await desk.settled()
    assert (row["state"], row["host"]) == ("failed", shown)
    assert {key: row["failure"][key] for key in failure} == {
        **failure,
        **dict.fromkeys(("kind", "message", "stack"), shown),
        "kinds": [shown],
    }
    await check_invariants(desk.world.database)


@pytest.mark.parametrize(("text", "shown"), TEXTS)
async def test_an_output_with_text_that_cannot_be_stored_settles_its_run(desk, text, shown):
    done = RunCompleted(**desk.rights(), run=desk.run, output={"TEXT": ["TEXT", "\\u0000"]})
    await desk.force_raw("w1", text, done)
    row = await desk.settled()
    assert (row["state"], row["output"]) == ("completed", {shown: [shown, "\\u0000"]})
    await check_invariants(desk.world.database)


@pytest.mark.parametrize(("text", "shown"), TEXTS)
async def test_progress_with_text_that_cannot_be_stored_is_kept(desk, text, shown):
    await desk.force("w1", LeaseClaimed(**desk.rights(), host="here"))
    await desk.world.until("SELECT count(*) FROM dispatcher.lease WHERE host = 'here'")
    line = LogLine(number=1, at=utc_now(), message="TEXT", fields={"TEXT": "TEXT"})
    news = Progress(
        lease=desk.order.lease,
        token=desk.order.token,
        run=desk.run,
        number=1,
        at=utc_now(),
        message="TEXT",
        lines=[line],
    )
    body = msgspec.json.encode(news).replace(b"TEXT", text)
    await desk.world.broker.client.publish(subjects.progress(desk.order.lease, "w1"), body)
    [message, fields] = await desk.world.until(
        "SELECT ARRAY[to_jsonb(message), fields] FROM dispatcher.run_log"
    )
    assert (message, fields) == (shown, {shown: shown})
    assert (
        await desk.world.value("SELECT progress ->> 'message' FROM dispatcher.run_report") == shown
    )


async def test_a_heartbeat_reply_names_foreign_leases(desk):
    await desk.lease("w1").claim()
    lease = desk.order.lease
    await desk.world.until("SELECT count(*) FROM dispatcher.lease WHERE claimed_by = 'w1'")
    mine = await desk.heartbeat("w1", leases=[lease, uuid4()])
    assert mine.release == [], "an own or unknown lease is kept"
    stranger = await desk.heartbeat("w2", leases=[lease])
    assert [(released.lease, released.reason) for released in stranger.release] == [
        (lease, "another")
    ]
    restarted = await desk.heartbeat("w1", nonce="n2", leases=[lease])
    assert [released.reason for released in restarted.release] == ["another"]
    await desk.force("w1", desk.failed())
    await desk.world.until("SELECT count(*) FROM dispatcher.lease WHERE ended_at IS NOT NULL")
    late = await desk.heartbeat("w1", leases=[lease])
    assert [released.reason for released in late.release] == ["ended"]


async def test_endpoints_are_found_as_micro_services_and_say_what_is_wrong(desk):
    reply = await desk.world.broker.client.request(subjects.LEASE_QUESTION, b"what?", timeout=5)
    assert reply.headers["Nats-Service-Error-Code"] == "400"
    assert "not a LeaseQuestion" in reply.headers["Nats-Service-Error"]
    info = await desk.world.broker.client.request("$SRV.INFO.headway-dispatcher", b"", timeout=5)
    endpoints = msgspec.json.decode(info.data)["endpoints"]
    assert [endpoint["subject"] for endpoint in endpoints] == [subjects.LEASE_QUESTION]
