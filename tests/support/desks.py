"""A dispatcher with one order out, and hands to claim it with."""

from typing import Any
from uuid import UUID, uuid4

import msgspec
from headway.worker.leases import Lease
from headway_clock import utc_now
from headway_contract import decode, encode, event, subjects
from headway_contract.lifecycle import RunFailed
from headway_contract.worker_protocol import HeartbeatReply, LeaseAnswer, LeaseQuestion
from headway_jetstream_kit import Stored
from headway_jetstream_kit.publish import publish

from support.apps import nightly
from support.work_events import order_puller
from support.world import World


class Desk:
    """The order, and the ways to speak for its lease."""

    def __init__(self, world, order) -> None:
        self.world = world
        self.order = order

    async def take_order(self) -> None:
        """Fetch the next order of the job, and do not acknowledge it."""
        puller = await order_puller(self.world, "job")
        [message] = await puller.fetch(1, wait=15)
        [found] = decode(message.body)
        self.order = found.data

    def lease(self, worker: str, nonce: str = "n1") -> Lease:
        return Lease(self.world.broker, self.order, worker=worker, nonce=nonce, host="here")

    async def ask(self, worker: str, nonce: str = "n1") -> LeaseAnswer:
        question = LeaseQuestion(lease=self.order.lease, worker=worker, nonce=nonce)
        reply = await self.world.broker.client.request(
            subjects.LEASE_QUESTION, msgspec.json.encode(question), timeout=5
        )
        return msgspec.json.decode(reply.data, type=LeaseAnswer)

    async def heartbeat(self, worker: str, nonce: str = "n1", **fields) -> HeartbeatReply:
        return await self.world.beat(worker, nonce=nonce, **{"slots": 5, **fields})

    async def restart(self, nonce: str, code_version: str) -> None:
        """Another process goes by the name of w1 from now on."""
        await self.heartbeat("w1", nonce=nonce, code_version=code_version)
        await self.world.until(
            "SELECT (nonce, code_version) = ($1, $2) FROM dispatcher.worker", nonce, code_version
        )

    async def force(self, worker: str, data, *, event_id: UUID | None = None) -> None:
        """Publish past the broker's fence, as a forgetful stream would let happen."""
        body = encode(
            event(
                data, id=event_id or uuid4(), source=f"worker/{worker}", subject="x", time=utc_now()
            )
        )
        answer = await publish(self.world.broker, subjects.event(self.order.lease, worker), body)
        assert isinstance(answer, Stored)

    async def force_raw(self, worker: str, text: bytes, *data) -> None:
        """Publish events in one message, with bytes that no encoder of ours makes for `TEXT`."""
        source = f"worker/{worker}"
        body = encode(
            [event(part, id=uuid4(), source=source, subject="x", time=utc_now()) for part in data]
        )
        subject = subjects.event(self.order.lease, worker)
        answer = await publish(self.world.broker, subject, body.replace(b"TEXT", text))
        assert isinstance(answer, Stored)

    async def settled(self):
        """The run of the order, once its work is settled."""
        await self.world.until("SELECT count(*) FROM dispatcher.work_queue WHERE state = 'settled'")
        [row] = await self.world.rows("SELECT * FROM dispatcher.run")
        return row

    @property
    def run(self) -> UUID:
        return self.order.runs[0].run

    def rights(self, **changes) -> dict:
        return {"lease": self.order.lease, "token": self.order.token, "nonce": "n1", **changes}

    def failed(self) -> RunFailed:
        """The end of the order's run, for good."""
        failure = {"kind": "E", "retryable": False}
        return RunFailed(**self.rights(), run=self.run, failure=failure)

    async def history(self) -> list[tuple[str, str | None]]:
        rows = await self.world.rows(
            "SELECT type, refusal FROM dispatcher.history WHERE lease_id = $1 ORDER BY id",
            self.order.lease,
        )
        return [(row["type"].split(".", 1)[1][:-3], row["refusal"]) for row in rows]


async def open_desk(world: World, **settings: Any) -> Desk:
    """Start a dispatcher, make a job due, and take its order."""
    await world.dispatcher(**settings)
    desk = Desk(world, None)
    await desk.heartbeat("w1")
    await world.fire(nightly())
    await desk.heartbeat("w1")  # a busy machine may count it as lost by now
    await desk.take_order()
    return desk
