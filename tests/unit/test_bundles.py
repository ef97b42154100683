"""Bundles of events: in order, and within the size limit of a message."""

from datetime import UTC, datetime
from uuid import UUID

import pytest
from headway_contract import decode, event
from headway_contract.settled import WorkSettled
from headway_relay import bundled, outbox
from headway_tracing import CONTEXTS_APART

AT = datetime(2027, 1, 1, tzinfo=UTC)


def settled(number: int, *, reason: str = "", traceparent: str | None = None):
    data = WorkSettled(
        work=UUID(int=number),
        round=1,
        group="g",
        outcome="completed",
        reason=reason,
        runs=1,
        attempts=1,
        settled_at=AT,
    )
    return event(
        data,
        id=f"settled.{number}",
        source="dispatcher",
        subject=data.work,
        time=AT,
        traceparent=traceparent,
    )


def test_nothing_makes_no_message():
    assert bundled("s", []) == []


@pytest.mark.parametrize("count", [1, 2, 100, 101, 250])
def test_all_of_them_travel_in_order_and_as_few_messages_as_may_be(count):
    events = [settled(number) for number in range(count)]
    messages = bundled("headway.settled.g", events)
    assert len(messages) == -(-count // outbox._MAX_EVENTS)
    assert [event for message in messages for event in decode(message.body)] == events
    assert {message.subject for message in messages} == {"headway.settled.g"}


def test_each_message_has_the_name_of_its_first_event():
    messages = bundled("s", [settled(number) for number in range(150)])
    assert [message.message_id for message in messages] == ["settled.0", "settled.100"]


def test_large_events_have_messages_of_their_own():
    large = "x" * (outbox._MAX_BYTES // 2)
    events = [settled(0), settled(1, reason=large), settled(2, reason=large), settled(3)]
    assert [len(decode(message.body)) for message in bundled("s", events)] == [2, 2]
    [alone] = bundled("s", [settled(0, reason=3 * large)])
    assert len(alone.body) > outbox._MAX_BYTES, "what is too large by itself is sent all the same"


def test_a_message_belongs_to_the_traces_of_all_its_events():
    first, second = (f"00-{number:032x}-{number:016x}-01" for number in (1, 2))
    events = [settled(0, traceparent=first), settled(1), settled(2, traceparent=second)]
    [message] = bundled("s", events)
    assert message.traceparent == CONTEXTS_APART.join((first, second))
    [untraced] = bundled("s", [settled(0)])
    assert untraced.traceparent is None
