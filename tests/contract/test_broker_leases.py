"""Facts that claims and fences rest on: the events stream on one server."""

import asyncio
import base64
import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.errors import MaxPayloadError
from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy
from nats.js.errors import APIError, BadRequestError, NoStreamResponseError, NotFoundError

pytestmark = pytest.mark.thorough

WRONG_LAST_SEQUENCE = 10071
NO_MESSAGE_FOUND = 10037
MIB = 1024 * 1024


@pytest.fixture(autouse=True)
async def events(jetstream: JetStreamContext, new_name: Callable[[str], str]) -> str:
    """The stream under test."""
    return await add_events_stream(jetstream, new_name("HEADWAY_EVENTS"))


async def add_events_stream(jetstream: JetStreamContext, name: str, **limits: Any) -> str:
    await jetstream.add_stream(
        name=name, subjects=["headway.event.*.*"], discard=DiscardPolicy.NEW, **limits
    )
    return name


def fence(lease: str, sequence: int, message_id: str | None = None) -> dict[str, str]:
    """Return headers that accept a message only after this last message of any sender."""
    headers = {
        "Nats-Expected-Last-Subject-Sequence": str(sequence),
        "Nats-Expected-Last-Subject-Sequence-Subject": f"headway.event.{lease}.*",
    }
    return headers if message_id is None else headers | {"Nats-Msg-Id": message_id}


def own_fence(sequence: int) -> dict[str, str]:
    """The first header alone."""
    return {"Nats-Expected-Last-Subject-Sequence": str(sequence)}


def wrong_last_sequence(refusal: APIError) -> bool:
    return refusal.code == 400 and refusal.err_code == WRONG_LAST_SEQUENCE


async def test_of_many_rival_claims_exactly_one_is_accepted(jetstream, events):
    claims = await asyncio.gather(
        *(
            jetstream.publish(f"headway.event.lease.worker-{n}", headers=fence("lease", 0))
            for n in range(20)
        ),
        return_exceptions=True,
    )
    refusals = [claim for claim in claims if isinstance(claim, BaseException)]

    assert len(refusals) == 19
    assert {type(refusal) for refusal in refusals} == {BadRequestError}
    assert all(isinstance(each, APIError) and wrong_last_sequence(each) for each in refusals)
    assert (await jetstream.stream_info(events)).state.messages == 1


async def test_the_next_message_must_name_the_last_one_of_any_worker(jetstream):
    claim = await jetstream.publish("headway.event.lease.worker", headers=fence("lease", 0))
    reaped = await jetstream.publish(
        "headway.event.lease._dispatcher", headers=fence("lease", claim.seq)
    )

    with pytest.raises(BadRequestError, check=wrong_last_sequence):
        await jetstream.publish("headway.event.lease.worker", headers=fence("lease", claim.seq))
    with pytest.raises(BadRequestError, check=wrong_last_sequence):
        await jetstream.publish("headway.event.lease.worker", headers=fence("lease", 999))
    await jetstream.publish("headway.event.lease.worker", headers=fence("lease", reaped.seq))


async def test_messages_of_other_leases_do_not_move_the_fence(jetstream):
    claim = await jetstream.publish("headway.event.lease.worker", headers=fence("lease", 0))
    await jetstream.publish("headway.event.other.worker", headers=fence("other", 0))
    await jetstream.publish("headway.event.lease.worker", headers=fence("lease", claim.seq))


async def test_without_the_second_header_two_outcomes_are_stored(jetstream, events):
    claim = await jetstream.publish("headway.event.lease.worker", headers=own_fence(0))
    await jetstream.publish("headway.event.lease._dispatcher", headers=own_fence(0))
    await jetstream.publish("headway.event.lease.worker", headers=own_fence(claim.seq))

    assert (await jetstream.stream_info(events)).state.messages == 3


async def test_the_expected_sequence_is_checked_before_the_message_id(jetstream):
    headers = fence("lease", 0, message_id="claim")
    await jetstream.publish("headway.event.lease.worker", headers=headers)

    with pytest.raises(BadRequestError, check=wrong_last_sequence):
        await jetstream.publish("headway.event.lease.worker", headers=headers)


async def test_a_repeated_message_id_is_answered_as_duplicate_and_stored_once(jetstream, events):
    headers = {"Nats-Msg-Id": "event"}
    first = await jetstream.publish("headway.event.lease.worker", headers=headers)
    again = await jetstream.publish("headway.event.lease.worker", headers=headers)

    assert (first.duplicate, again.duplicate) == (None, True)
    assert first.seq == again.seq
    assert (await jetstream.stream_info(events)).state.messages == 1


async def test_a_message_id_is_a_duplicate_even_after_its_message_was_purged(jetstream, events):
    headers = fence("lease", 0, message_id="claim")
    await jetstream.publish("headway.event.lease.worker", headers=headers)
    await jetstream.purge_stream(events, subject="headway.event.lease.*")

    assert (await jetstream.publish("headway.event.lease.worker", headers=headers)).duplicate
    assert (await jetstream.stream_info(events)).state.messages == 0


async def test_after_a_purge_the_lease_can_be_claimed_again(jetstream, events):
    await jetstream.publish("headway.event.lease.worker", headers=fence("lease", 0))
    await jetstream.publish("headway.event.other.worker", headers=fence("other", 0))
    await jetstream.purge_stream(events, subject="headway.event.lease.*")

    again = await jetstream.publish("headway.event.lease.rival", headers=fence("lease", 0))

    assert again.seq == 3
    with pytest.raises(BadRequestError, check=wrong_last_sequence):
        await jetstream.publish("headway.event.other.rival", headers=fence("other", 0))


async def test_after_max_age_the_lease_can_be_claimed_again(jetstream, events, new_name):
    await jetstream.delete_stream(events)
    aging = await add_events_stream(jetstream, new_name("AGING"), max_age=0.2)
    await jetstream.publish("headway.event.lease.worker", headers=fence("lease", 0))
    with pytest.raises(BadRequestError, check=wrong_last_sequence):
        await jetstream.publish("headway.event.lease.rival", headers=fence("lease", 0))

    async with asyncio.timeout(5):
        while True:
            if (await jetstream.stream_info(aging)).state.messages == 0:
                break
            await asyncio.sleep(0.01)

    await jetstream.publish("headway.event.lease.rival", headers=fence("lease", 0))


async def test_the_last_message_of_a_lease_is_found_whoever_sent_it(connection, jetstream, events):
    claim = await jetstream.publish("headway.event.lease.worker", headers=fence("lease", 0))
    ended = await jetstream.publish(
        "headway.event.lease._dispatcher", b"reaped", headers=fence("lease", claim.seq)
    )
    await jetstream.publish("headway.event.other.worker", headers=fence("other", 0))

    message = (await last_message(connection, events, "headway.event.lease.*"))["message"]

    assert message["seq"] == ended.seq
    assert message["subject"] == "headway.event.lease._dispatcher"
    assert base64.b64decode(message["data"]) == b"reaped"
    assert datetime.fromisoformat(message["time"]).utcoffset() is not None


async def test_a_stored_message_keeps_the_headers_that_name_its_predecessor(
    connection, jetstream, events
):
    headers = fence("lease", 0, message_id="claim")
    await jetstream.publish("headway.event.lease.worker", headers=headers)

    message = (await last_message(connection, events, "headway.event.lease.*"))["message"]
    stored = await jetstream.get_last_msg(events, "headway.event.lease.*")
    subscription = await jetstream.pull_subscribe("headway.event.*.*", "projector", events)
    [delivered] = await subscription.fetch(1)

    assert b"Nats-Expected-Last-Subject-Sequence: 0\r\n" in base64.b64decode(message["hdrs"])
    assert stored.headers == headers
    assert delivered.headers == headers


async def test_a_lease_without_messages_is_answered_with_not_found(connection, jetstream, events):
    answer = await last_message(connection, events, "headway.event.lease.*")

    assert (answer["error"]["code"], answer["error"]["err_code"]) == (404, NO_MESSAGE_FOUND)
    with pytest.raises(NotFoundError):
        await jetstream.get_last_msg(events, "headway.event.lease.*")


async def test_publishing_without_a_stream_fails_at_once(jetstream, events):
    await jetstream.delete_stream(events)

    async with asyncio.timeout(5):
        with pytest.raises(NoStreamResponseError):
            await jetstream.publish("headway.event.lease.worker", timeout=60)


async def test_the_client_refuses_a_body_above_max_payload(connection, jetstream):
    assert connection.max_payload == MIB
    await jetstream.publish("headway.event.lease.worker", bytes(MIB))
    with pytest.raises(MaxPayloadError):
        await jetstream.publish("headway.event.lease.worker", bytes(MIB + 1))
    assert connection.is_connected


async def test_headers_count_as_payload_and_too_many_close_the_connection_for_good(nats_url):
    closed = asyncio.Event()

    async def on_closed() -> None:
        closed.set()

    async def on_error(_: Exception) -> None: ...

    client = await nats.connect(
        nats_url, max_reconnect_attempts=-1, closed_cb=on_closed, error_cb=on_error
    )
    headers = {"Name": "value"}
    room = MIB - len(b"NATS/1.0\r\nName: value\r\n\r\n")

    await client.jetstream().publish("headway.event.lease.w", bytes(room), headers=headers)
    assert client.is_connected
    await client.publish("headway.event.lease.w", bytes(room + 1), headers=headers)

    await asyncio.wait_for(closed.wait(), 5)
    assert client.is_closed


async def last_message(connection: Client, stream: str, subject: str) -> Any:
    """Ask the plain API, as a client in any language would."""
    answer = await connection.request(
        f"$JS.API.STREAM.MSG.GET.{stream}",
        json.dumps({"last_by_subj": subject}).encode(),
        timeout=5,
    )
    return json.loads(answer.data)
