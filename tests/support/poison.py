"""Messages that no worker of ours sends, among good ones."""

import asyncio
from collections import Counter
from random import Random
from uuid import UUID, uuid4

import msgspec
import pytest
from headway_clock import utc_now
from headway_contract import Event, Malformed, decode, encode, event, subjects
from headway_contract.lifecycle import LeaseEvent, RunCompleted
from headway_contract.orders import RunDispatched
from headway_decisions.runs.report_limits import storable_json
from headway_dispatcher.runs.projector import event_intake
from headway_dispatcher.wakeups import Wakeups
from headway_jetstream_kit import Refused, Stored
from headway_jetstream_kit.provisioning import consumer_info
from headway_jetstream_kit.publish import publish
from hypothesis import strategies as st

# Values that JSON can spell and something behind it may choke on.
HOSTILE = [
    "NaN",
    "-Infinity",
    "1e999",
    "-0",
    "123456789012345678901234567890",
    '"\\u0000"',
    '"\\ud800"',
    '"\\udc00\\ud800"',
    '"\U0001f600\u202e"',
    '"a\\r\\nNats-Rollup: all"',
    "'single'",
    "null",
    "true",
    "[]",
    "{}",
    '{"a":1,"a":2}',
    '{"\\u0000":1}',
    "[" * 5000 + "]" * 5000,
    '{"a":' * 3000 + "1" + "}" * 3000,
    '"0001-01-01T00:00:00+14:00"',
    '"9999-12-31T23:59:59.999999-14:00"',
    '"00000000-0000-0000-0000-000000000000"',
    '"' + "x" * 300_000 + '"',
]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
).map(lambda value: msgspec.json.encode(_encodable(value)).decode())


def _encodable(value):
    """JSON has no half surrogates; what Hypothesis makes of text may have."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, list):
        return [_encodable(element) for element in value]
    if isinstance(value, dict):
        return {_encodable(key): _encodable(element) for key, element in value.items()}
    return value


@st.composite
def generated(draw, good: bytes) -> bytes:
    """A body that began as a good one, or never was one."""
    kind = draw(st.sampled_from(["noise", "flipped", "cut", "field", "field", "data", "data"]))
    if kind == "noise":
        return draw(st.binary(max_size=200) | JSON.map(str.encode))
    if kind == "flipped":
        at = draw(st.integers(0, len(good) - 1))
        return good[:at] + draw(st.binary(min_size=1, max_size=3)) + good[at + 1 :]
    if kind == "cut":
        return good[: draw(st.integers(0, len(good) - 1))]
    value = draw(st.sampled_from(HOSTILE) | JSON)
    envelope = msgspec.json.decode(good)
    within = envelope if kind == "field" else envelope["data"]
    within[draw(st.sampled_from(sorted(within)))] = msgspec.Raw(value.encode())
    if draw(st.booleans()):
        envelope["id"] = str(uuid4())
    return msgspec.json.encode(envelope)


class Batch:
    """Good and bad messages of one stream, told together."""

    def __init__(self, world, seed: int = 0) -> None:
        self.world = world
        self.random = Random(seed)
        self.waiting: list[tuple[str, bytes]] = []
        self.stored: list[tuple[str, bytes]] = []

    def add(self, subject: str, *bodies: bytes) -> None:
        self.waiting += [(subject, body) for body in bodies]

    async def tell(self, *, headers: dict[str, str] | None = None) -> None:
        """Publish all of them in any order; what the broker refuses has not happened."""
        self.random.shuffle(self.waiting)
        for subject, body in self.waiting:
            answer = await publish(self.world.broker, subject, body, headers=headers)
            assert isinstance(answer, Stored | Refused), answer
            if isinstance(answer, Stored):
                self.stored.append((subject, body))
        self.waiting.clear()

    async def take_in(self, intake, stream: str, consumer: str) -> None:
        """Run an intake until nothing is left, which must not take for ever."""
        async with asyncio.timeout(60):
            while True:
                info = await consumer_info(self.world.broker, stream, consumer)
                if not info["num_pending"] and not info["num_ack_pending"]:
                    return
                await intake.run_once()

    async def rejected(self, schema: str = "dispatcher") -> Counter:
        rows = await self.world.rows(f"SELECT body FROM {schema}.rejected")
        return Counter(row["body"] for row in rows)


class Orders:
    """Orders of real work, taken but not begun."""

    def __init__(self, world, taken: list[RunDispatched]) -> None:
        self.world = world
        self.taken = taken

    def word(self, order: RunDispatched, kind, worker: str = "w1", **fields) -> bytes:
        rights = {"lease": order.lease, "token": order.token, "nonce": "n1"}
        data = kind(**{**rights, **fields})
        return encode(
            event(data, id=uuid4(), source=f"worker/{worker}", subject="x", time=utc_now())
        )

    def good(self, order: RunDispatched) -> bytes:
        return self.word(order, RunCompleted, run=order.runs[0].run, output={"fine": True})

    async def project(self, batch: Batch) -> None:
        intake = event_intake(self.world.database, self.world.broker, Wakeups())
        await batch.take_in(intake, subjects.EVENTS_STREAM, subjects.EVENTS_CONSUMER)

    async def completed(self) -> set[UUID]:
        rows = await self.world.rows("SELECT run_id FROM dispatcher.run WHERE state = 'completed'")
        return {row["run_id"] for row in rows}

    async def accounted_for(self, batch: Batch) -> int:
        """Every stored message is in history or put aside; returns how many were put aside.

        An id counts once for the lease that its subject names, whatever lease its data names.
        """
        aside = await batch.rejected()
        rows = await self.world.rows(
            "SELECT lease_id, event_id FROM dispatcher.inbox"
            " WHERE event_id IN (SELECT event_id FROM dispatcher.history)"
        )
        known = {(row["lease_id"], row["event_id"]) for row in rows}
        put_aside = +aside
        for subject, body in batch.stored:
            lease, _ = subjects.lease_and_worker(subject)
            if aside[body]:
                aside[body] -= 1
                continue
            try:
                events = decode(storable_json(body))
            except Malformed:
                pytest.fail(f"neither applied nor put aside: {body[:200]!r}")
            for item in events:
                if isinstance(item, Event) and isinstance(item.data, LeaseEvent):
                    assert (lease, item.id) in known, body[:200]
        assert not +aside, "put aside although nobody has told it"
        return sum(put_aside.values())
