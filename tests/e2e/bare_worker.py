"""A worker with nothing but nats-py: proof that PROTOCOL.md is enough. Not one import of ours."""

import asyncio
import json
import os
import sys
import uuid
from datetime import UTC, datetime

import nats
from nats.js.errors import APIError

JOB, NAME, NONCE = sys.argv[1], sys.argv[2], uuid.uuid4().hex
SLOTS = 4
WRONG_SEQUENCE = 10071


class BareWorker:
    def __init__(self, nc):
        self.nc = nc
        self.js = nc.jetstream()
        self.held = {}

    def event(self, order, kind, run=None, **more):
        data = {"lease": order["lease"], "token": order["token"], "nonce": NONCE, **more}
        return {
            "specversion": "1.0",
            "id": str(uuid.uuid4()),
            "source": f"worker/{NAME}",
            "type": f"headway.{kind}.v1",
            "subject": run or order["lease"],
            "time": datetime.now(UTC).isoformat(),
            "data": data | ({"run": run} if run else {}),
        }

    async def publish(self, order, events, expected):
        """Stored: the sequence. Refused: none. Anything else raises."""
        lease = order["lease"]
        try:
            ack = await self.js.publish(
                f"headway.event.{lease}.{NAME}",
                json.dumps(events).encode(),
                headers={
                    "Nats-Expected-Last-Subject-Sequence": str(expected),
                    "Nats-Expected-Last-Subject-Sequence-Subject": f"headway.event.{lease}.*",
                },
            )
            return ack.seq
        except APIError as error:
            if error.err_code == WRONG_SEQUENCE:
                return None
            raise

    async def ask(self, order):
        question = {"lease": order["lease"], "worker": NAME, "nonce": NONCE}
        reply = await self.nc.request(
            "headway.control.dispatcher.lease", json.dumps(question).encode(), timeout=3
        )
        return json.loads(reply.data)

    async def heartbeat(self, stopped=False):
        beat = {"worker": NAME, "nonce": NONCE, "jobs": [JOB], "slots": SLOTS, "sdk": "bare"}
        beat |= {"leases": list(self.held), "runs": list(self.held.values()), "stopped": stopped}
        try:
            await self.nc.request("headway.heartbeat", json.dumps(beat).encode(), timeout=2)
        except (nats.errors.Error, TimeoutError) as error:
            print("heartbeat:", error, file=sys.stderr)

    async def beat(self):
        while True:
            await self.heartbeat()
            await asyncio.sleep(float(os.environ.get("HEARTBEAT_SECONDS", "3")))

    async def carry_out(self, message):
        order = json.loads(message.data)["data"]
        run = order["runs"][0]["run"]
        opening = [self.event(order, "lease.claimed"), self.event(order, "run.started", run)]
        sequence = await self.publish(order, opening, 0)
        if sequence is None:
            answer = await self.ask(order)
            if answer["answer"] != "mine":
                return await message.ack()
            sequence = answer["sequence"]
        self.held[order["lease"]] = run
        await message.ack()
        output = {"echo": order["runs"][0]["input"], "by": NAME}
        closing = [self.event(order, "run.completed", run, output=output)]
        while await self.publish(order, closing, sequence) is None:
            answer = await self.ask(order)
            if answer["answer"] != "mine" or closing[0]["id"] in answer["stored"]:
                break
            sequence = answer["sequence"]
        del self.held[order["lease"]]

    async def work(self):
        asyncio.create_task(self.beat())
        orders = await self.js.pull_subscribe_bind(consumer=f"worker-{JOB}", stream="HEADWAY_RUNS")
        while True:
            try:
                messages = await orders.fetch(SLOTS, timeout=1)
            except (nats.errors.Error, TimeoutError):
                continue
            await asyncio.gather(*(self.carry_out(message) for message in messages))


async def main():
    nc = await nats.connect(os.environ["HEADWAY_NATS_URL"])
    await BareWorker(nc).work()


asyncio.run(main())
