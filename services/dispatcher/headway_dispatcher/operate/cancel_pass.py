"""Cancels: work that is to end early.

What waits is settled at once. What was ordered is marked, and never tried again: whoever
runs it is told so in every answer to its heartbeats until the run has ended, and sooner by
a push. An order that nobody has claimed is taken back under the same fence that a claim
goes through, so exactly one of the two succeeds. Work that is not known yet is written
down as settled; when it comes, it stays so.
"""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from headway_contract.control import CancelPush, CancelRun
from headway_contract.settled import WorkSettled
from headway_contract.work import WorkCancelRequested
from headway_history import Record
from headway_jetstream_kit import Broker
from headway_postgres_kit import Connection, Database, note

from headway_dispatcher import store
from headway_dispatcher.history import history_records
from headway_dispatcher.intake import prune
from headway_dispatcher.metrics import Settled
from headway_dispatcher.operate.push import push
from headway_dispatcher.outbound_events import settled_message
from headway_dispatcher.runs import settle
from headway_dispatcher.runs.fencing import take_back
from headway_dispatcher.store import OUTBOX, works

BATCH = 1000
# How soon to look again at an order that somebody claimed just when it was to be taken back.
_LOOK_AGAIN = 0.5


async def request(
    connection: Connection,
    requests: Sequence[WorkCancelRequested],
    now: datetime,
    records: list[Record],
) -> set[UUID]:
    """Write cancels down; what waits, and what is not known yet, is settled by it.

    Tells in which manifests' slots dead letters wait for their turn (`letters.resume_at_once`).
    """
    newest: dict[UUID, WorkCancelRequested] = {}
    for one in requests:
        if one.work not in newest or one.round > newest[one.work].round:
            newest[one.work] = one
    if not newest:
        return set()
    rows = await connection.fetch(works["lock"], sorted(newest))
    unknown = set(newest) - {row["id"] for row in rows}
    meant = [
        row
        for row in rows
        if row["state"] != "settled"
        and row["cancel_requested_at"] is None
        and newest[row["id"]].round >= row["round"]
    ]
    if meant:
        await connection.execute(
            works["request_cancel"],
            [row["id"] for row in meant],
            [newest[row["id"]].reason for row in meant],
            now,
        )
        records += [
            history_records.cancel_requested(newest[row["id"]], round=row["round"], now=now)
            for row in meant
        ]
    waiting = [
        (row, newest[row["id"]].reason) for row in meant if row["state"] in ("queued", "waiting")
    ]
    waited_for = await settle.cancel(connection, waiting, now=now, records=records)
    not_known = [newest[work] for work in unknown]
    return waited_for | await _settle_unknown(connection, not_known, now, records)


async def _settle_unknown(
    connection: Connection,
    requests: Sequence[WorkCancelRequested],
    now: datetime,
    records: list[Record],
) -> set[UUID]:
    if not requests:
        return set()
    buried = await prune.buried(connection, [one.manifest_id for one in requests])
    kept = [one for one in requests if one.manifest_id not in buried]
    rows = await connection.fetch(
        works["add_cancelled"],
        [one.work for one in kept],
        [one.round for one in kept],
        [one.manifest_id for one in kept],
        [one.manifest for one in kept],
        [one.group for one in kept],
        [one.reason for one in kept],
        now,
    )
    added = {row["id"] for row in rows}
    settled = [one for one in requests if one.work in added or one.manifest_id in buried]
    ends = {one.work: _end(one, now) for one in settled}
    # What it would have been the work of, nobody has told yet.
    note(*(Settled(one.group, "", "cancelled") for one in settled))
    await OUTBOX.add(connection, [settled_message(end) for end in ends.values()])
    for one in settled:
        if one.work in added:
            records.append(
                history_records.cancel_requested(one, round=one.round, now=now, unknown=True)
            )
            records.append(history_records.settled(ends[one.work]))
    # Whatever else is left was taken in by somebody else at this very moment.
    left = [one for one in kept if one.work not in added]
    return await request(connection, left, now, records)


def _end(requested: WorkCancelRequested, now: datetime) -> WorkSettled:
    return WorkSettled(
        work=requested.work,
        round=requested.round,
        manifest_id=requested.manifest_id,
        manifest=requested.manifest,
        group=requested.group,
        outcome="cancelled",
        reason=requested.reason,
        runs=0,
        attempts=0,
        settled_at=now,
    )


class Cancels:
    """Takes orders back and pushes cancels to workers, for one dispatcher process."""

    def __init__(self, database: Database, broker: Broker, *, name: str) -> None:
        self._database = database
        self._broker = broker
        self._name = name

    async def run_once(self) -> float | None:
        """See to every ordered run whose work is to end early."""
        async with self._database.acquire() as connection:
            now = await store.read_now(connection)
            rows = await connection.fetch(works["cancelling"], BATCH)
        await self._push(row for row in rows if row["claimed_by"] is not None)
        unclaimed: dict[UUID, list[Any]] = {}
        for row in rows:
            if row["claimed_by"] is None:
                unclaimed.setdefault(row["lease_id"], []).append(row)
        taken_back = await asyncio.gather(
            *(self._take_back(of_lease, now) for of_lease in unclaimed.values())
        )
        return None if all(taken_back) else _LOOK_AGAIN

    async def _push(self, rows: Iterable[Any]) -> None:
        """Tell workers ahead of their next heartbeat; its answer says the same."""
        by_worker: dict[str, list[CancelRun]] = {}
        for row in rows:
            cancel = CancelRun(run=row["run_id"], lease=row["lease_id"], reason=row["reason"])
            by_worker.setdefault(row["claimed_by"], []).append(cancel)
        for worker, cancels in by_worker.items():
            await push(self._broker, worker, CancelPush(cancel=cancels))

    async def _take_back(self, rows: Sequence[Any], now: datetime) -> bool:
        """End the runs of an order before anybody claims it; false if somebody has."""
        reasons = {row["run_id"]: row["reason"] for row in rows}
        return await take_back(
            self._broker,
            self._database,
            rows[0],
            reasons,
            speaker=self._name,
            why="cancelled",
            now=now,
        )
