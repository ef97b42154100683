"""A worker that needs only nats-py: it proves that PROTOCOL.md is sufficient."""

import asyncio
import json
import os
import signal
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
        self.held, self.known = {}, set()

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
        """Return the stored sequence, or `None` if the dispatcher must be asked."""
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
            if error.err_code != WRONG_SEQUENCE:
                print("undecided:", error, file=sys.stderr)
        except (nats.errors.Error, TimeoutError) as error:
            print("no answer:", error, file=sys.stderr)
        return None

    async def ask(self, order):
        question = {"lease": order["lease"], "worker": NAME, "nonce": NONCE}
        subject = "headway.control.dispatcher.lease"
        try:
            reply = await self.nc.request(subject, json.dumps(question).encode(), timeout=3)
            return json.loads(reply.data)
        except (nats.errors.Error, TimeoutError, ValueError):
            return {"answer": "undecided", "sequence": 0, "stored": []}

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
        if order["lease"] in self.known:
            return await message.ack()
        sequence = await self.publish(order, opening, 0)
        if sequence is None:
            answer = await self.ask(order)
            sequence = answer["sequence"]
            if answer["answer"] in ("another", "ended"):
                return await message.ack()
            if answer["answer"] == "nothing_stored":
                sequence = await self.publish(order, opening, sequence)
            if answer["answer"] not in ("mine", "nothing_stored") or sequence is None:
                return await message.nak(delay=1)
        self.known.add(order["lease"])
        self.held[order["lease"]] = run
        await message.ack()
        output = {"echo": order["runs"][0]["input"], "by": NAME}
        closing = [self.event(order, "run.completed", run, output=output)]
        while await self.publish(order, closing, sequence) is None:
            answer = await self.ask(order)
            if answer["answer"] in ("another", "ended") or closing[0]["id"] in answer["stored"]:
                break
            sequence = answer["sequence"] or sequence
        return self.held.pop(order["lease"])

    async def work(self, stop):
        beating = asyncio.create_task(self.beat())
        orders = await self.js.pull_subscribe_bind(consumer=f"worker-{JOB}", stream="HEADWAY_RUNS")
        while not stop.is_set():
            try:
                messages = await orders.fetch(SLOTS, timeout=1)
            except (nats.errors.Error, TimeoutError):
                await asyncio.sleep(0.1)
                continue
            await asyncio.gather(*(self.carry_out(message) for message in messages))
        beating.cancel()
        await self.heartbeat(stopped=True)


async def main():
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    nc = await nats.connect(os.environ["HEADWAY_NATS_URL"])
    await BareWorker(nc).work(stop)


asyncio.run(main())
