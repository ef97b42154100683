"""Short runs are written and settled by columns, all others by the rules of Python.

Both ways give the same rows, messages and history: each random history is projected once as it is,
and once with the short way shut.
"""

from collections.abc import Iterator
from datetime import timedelta
from itertools import chain
from random import Random
from typing import Any
from uuid import UUID

import msgspec
import pytest
from headway_contract import Event, event, lifecycle
from headway_contract.orders import RunDispatched
from headway_contract.work import JobChanged, RetryPolicy, WorkCancelRequested, WorkQueued
from headway_dispatcher.history.pages import FIRST, read_gone, read_page
from headway_dispatcher.history.verify import differences
from headway_dispatcher.operate import cancel
from headway_dispatcher.runs import projector, settle
from headway_dispatcher.runs.acceptance import Batch, LeaseMessage
from headway_dispatcher.runs.settle import Changes
from headway_dispatcher.store import HISTORY
from support.gates import SECOND, Gates, SetClock, work

pytestmark = pytest.mark.thorough

MANIFESTS = [UUID(int=number) for number in range(1, 30)]
RETRY = RetryPolicy(attempts=3, interval_seconds=1, jitter=0)
TABLES = {
    "work_queue": "to_jsonb(item)",
    # When something was heard is real time.
    "metadata": "to_jsonb(item) - 'start_heard_at'",
    "lease": "to_jsonb(item) - 'last_heard_at' - 'ended_at'",
    # Its id is random.
    "dead_letter": "to_jsonb(item) - 'id'",
}
# The columns of an event about completed works.
COMPLETED = ("work", "round", "manifest_id", "manifest", "run", "runs", "attempts")
# A packed event says more of each run than an event of its own. Its fold is compared.
EVENTS = """
    SELECT type, work_id, accepted, refusal, occurred_at FROM dispatcher.history_event
    WHERE id > $1
"""


class Workers:
    """Workers that run the orders of gates, with random outcomes."""

    def __init__(self, gates: Gates, chance: Random) -> None:
        self.gates, self.chance = gates, chance
        self.known: set[UUID] = set()
        self.sequence = 0

    async def messages(self) -> list[LeaseMessage]:
        """Return the messages about all new orders, in any order, some of them twice."""
        orders = [order for order in await self.gates.orders() if order.lease not in self.known]
        self.known.update(order.lease for order in orders)
        found = [message for order in orders for message in self._of_lease(order)]
        found += self.chance.sample(found, k=len(found) // 5)
        self.chance.shuffle(found)
        return found

    def _of_lease(self, order: RunDispatched) -> Iterator[LeaseMessage]:
        rights = {"lease": order.lease, "token": order.token, "nonce": "n"}
        if self.chance.random() < 0.05:
            rights["token"] = "guessed"
        parts = [lifecycle.LeaseClaimed(**rights, host="h")]
        together: list[lifecycle.CompletedRun] = []
        for run in order.runs:
            own = {**rights, "run": run.run}
            if (how := self.chance.random()) < 0.6:
                started = self.gates.clock.at + self.chance.randint(-2, 2) * SECOND
                seconds = self.chance.choice([0.0, 0.5, 3.0])
                together.append(
                    lifecycle.CompletedRun(
                        run=run.run, started_at=started, seconds=seconds, output=how
                    )
                )
                continue
            parts += self.chance.choice([[lifecycle.RunStarted(**own)], []])
            if how < 0.68:
                activation = lifecycle.Activation(manifest="child", key="k")
                parts.append(lifecycle.RunActivated(**own, activations=[activation]))
            failure = lifecycle.Failure(kind="Boom", retryable=self.chance.random() < 0.8)
            ends = (
                lifecycle.RunCompleted(**own, output=1, seconds=1.0),
                lifecycle.RunFailed(**own, failure=failure),
                lifecycle.RunCancelled(**own),
            )
            parts.append(self.chance.choices(ends, [3, 2, 1])[0])
        if together:
            parts.insert(1, lifecycle.RunsCompleted(**rights, runs=together))
        predecessor = 0
        while parts:
            size = self.chance.randint(1, 3)
            now, parts = parts[:size], parts[size:]
            self.sequence += 1
            yield LeaseMessage(
                sequence=self.sequence,
                lease=order.lease,
                worker="w",
                predecessor=predecessor,
                events=[self._event(part) for part in now],
            )
            predecessor = self.sequence

    def _event(self, data: Any) -> Event:
        id_ = UUID(int=self.chance.getrandbits(128))
        at = self.gates.clock.at + self.chance.randint(-3, 3) * SECOND
        return event(data, id=id_, source="worker/w", subject="x", time=at)


@pytest.mark.parametrize("seed", range(4))
async def test_the_short_way_and_the_rules_agree(database, monkeypatch, seed):
    chance = Random(seed)
    gates = Gates(database, clock=SetClock(), max_active=100)
    await gates.worker("etl", slots=4)
    await gates.tell(JobChanged(job="etl", version=1, batch=5))
    workers = Workers(gates, chance)
    for _ in range(5):
        manifests = [*chance.sample(MANIFESTS, k=6), None, None]
        works = [
            work(retry=RETRY, manifest_id=each, manifest=each and str(each), cause="due:x")
            for each in manifests
        ]
        await gates.queue(*works)
        gates.clock.at += timedelta(seconds=chance.randint(1, 5))
        await gates.drain()
        await request_cancel(gates, chance.choice(works))
        gates.clock.at += SECOND
        messages = await workers.messages()
        short = await state_after(gates, messages)
        with monkeypatch.context() as patch:
            patch.setattr(Batch, "is_short", lambda batch, run: False)
            patch.setattr(projector, "settle_completed", settle_by_the_rules)
            by_the_rules = await state_after(gates, messages)
        for name in short:
            assert short[name] == by_the_rules[name], name
        await project(gates, messages)
    assert (
        await gates.value("SELECT count(*) FROM dispatcher.work_queue WHERE state = 'settled'") > 10
    )


async def request_cancel(gates: Gates, queued: WorkQueued) -> None:
    """Request the cancel of work, which may still wait, as the scheduler does."""
    names = ("work", "round", "manifest_id", "manifest", "group")
    stated = {name: getattr(queued, name) for name in names}
    request = WorkCancelRequested(**stated, reason="no", requested_at=gates.clock.at)
    changes = Changes()
    async with gates.database.transaction() as connection:
        await cancel.request_cancels(connection, [request], gates.clock.at, changes)
        await changes.write(connection, now=gates.clock.at)


async def settle_by_the_rules(connection, completed, *, times, changes, writes, contexts, new):
    """Settle completed work as if it had failed or been cancelled."""
    assert not new
    await writes.send(connection)
    await settle.settle(
        connection, completed, now=times.schedule, changes=changes, writes=writes, contexts=contexts
    )


async def project(gates, messages) -> None:
    async with gates.database.transaction() as connection:
        await projector._project(connection, gates.database, messages, Changes())


async def state_after(gates, messages) -> dict[str, list[Any]]:
    """Return all rows, messages and new history after a projection, which is rolled back."""
    found: dict[str, list[Any]] = {}
    async with gates.database.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        last = await connection.fetchval("SELECT coalesce(max(id), 0) FROM dispatcher.history")
        await projector._project(connection, gates.database, messages, Changes())
        for table, columns in TABLES.items():
            rows = await connection.fetch(
                f"SELECT {columns} AS row FROM dispatcher.{table} AS item"
            )
            found[table] = _sorted(row["row"] for row in rows)
        found["history"] = _sorted(map(dict, await connection.fetch(EVENTS, last)))
        bodies = await connection.fetch("SELECT body FROM dispatcher.outbox WHERE body IS NOT NULL")
        found["outbox"] = _sorted(chain.from_iterable(outcomes(row["body"]) for row in bodies))
        packed = await HISTORY.packed(connection)
        page = await read_page(connection, FIRST, packed)
        await page.fold()
        assert differences(page, await read_gone(connection)) == []
        await transaction.rollback()
    return found


def _sorted(items) -> list[str]:
    return sorted(msgspec.json.encode(item, order="deterministic").decode() for item in items)


def outcomes(body: bytes) -> Iterator[dict[str, Any]]:
    """Yield the outcome of each work in a message, without empty fields and random ids."""
    content = msgspec.json.decode(body)
    for each in content if isinstance(content, list) else [content]:
        data = each["data"]
        found = [data]
        if isinstance(data["work"], list):
            shared = {"group": data["group"], "settled_at": data["settled_at"]}
            columns = [data[name] for name in COMPLETED]
            found = [
                dict(zip(COMPLETED, row, strict=True)) | shared | {"outcome": "completed"}
                for row in zip(*columns, strict=True)
            ]
        for outcome in found:
            yield {
                name: value
                for name, value in outcome.items()
                if name != "dead_letter" and value not in (None, "", [])
            }
