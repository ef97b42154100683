"""News of runs: how far they are, and what they log.

It comes on core NATS, unfenced, and may be lost; so it is gathered here for a moment and
written together, and what cannot be written now waits, up to a limit. Nothing is decided by it.
"""

import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from headway_clock import monotonic
from headway_contract import subjects
from headway_contract.envelope import decode_lenient
from headway_contract.worker_protocol import Progress
from headway_decisions.runs.report_limits import (
    Allowance,
    FloodLimit,
    News,
    Teller,
    digest,
    refusal,
    size_of,
    storable_json,
)
from headway_jetstream_kit import Broker
from headway_jetstream_kit.limited_log import LimitedLog
from headway_postgres_kit import Connection, Database, DatabaseUnavailable, json_array
from headway_service_kit.passes import Wakeup
from headway_tracing.log import get_logger
from msgspec import Struct
from nats.aio.msg import Msg

from headway_dispatcher import store
from headway_dispatcher.store import progress_queries

logger = logging.getLogger(__name__)

BATCH = 500
_MOST_WAITING = 10_000
# How often news waits for a run whose row somebody else is at.
_MOST_TRIES = 20
_TRY_AGAIN_SECONDS = 0.05


# A run tells a few times a second, and a lease of short runs once for each of them.
LEASE_ALLOWANCE = Allowance(burst=1_000, per_second=50)
# Over all leases, those that a worker invents among them.
WORKER_ALLOWANCE = Allowance(burst=10_000, per_second=1_000)


class _Waiting(Struct):
    news: News
    tries: int = 0


class ProgressDesk:
    """Listens to the news that reaches this dispatcher."""

    def __init__(self, database: Database, broker: Broker) -> None:
        self._database = database
        self._broker = broker
        self._waiting: list[_Waiting] = []
        self.arrived = Wakeup()
        # News that was not kept: too much of it, unreadable, or refused.
        self.lost = 0
        self._log = LimitedLog(get_logger(__name__))
        self._of_leases = FloodLimit(LEASE_ALLOWANCE)
        self._of_workers = FloodLimit(WORKER_ALLOWANCE)

    async def listen(self) -> None:
        """Share the news with all other dispatchers."""

        async def on_news(message: Msg) -> None:
            try:
                lease, worker = subjects.lease_and_worker(message.subject, kind="progress")
                if not self._admits(lease, worker):
                    self._lose(1, "progress over the limit", f"lease {lease} of worker {worker}")
                    return
                progress = decode_lenient(storable_json(message.data), Progress)
            except (msgspec.DecodeError, ValueError) as error:
                self._lose(1, "progress unreadable", f"{message.subject}: {error}")
                return
            self._wait([_Waiting(News(worker=worker, lease=lease, progress=progress))])
            self.arrived.call()

        await self._broker.client.subscribe(
            subjects.PROGRESS_SUBJECTS, queue=subjects.DISPATCHERS, cb=on_news
        )

    async def run_once(self) -> float | None:
        """Write down all news that has arrived."""
        taken, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
        if not taken:
            return None
        try:
            again = await self._keep_each(taken)
        except DatabaseUnavailable:
            self._wait(taken)
            raise
        self._wait(again)
        if again:
            return _TRY_AGAIN_SECONDS
        return 0.0 if self._waiting else None

    def _wait(self, more: Sequence[_Waiting]) -> None:
        room = _MOST_WAITING - len(self._waiting)
        self._waiting += more[: max(room, 0)]
        if len(more) > room:
            self._lose(len(more) - max(room, 0), "progress queue full", f"{_MOST_WAITING} wait")

    def _admits(self, lease: UUID, worker: str) -> bool:
        now = monotonic()
        return self._of_workers.admits(worker, now) and self._of_leases.admits(lease, now)

    def _lose(self, count: int, why: str, detail: str) -> None:
        self.lost += count
        self._log.warning(why, count=count, detail=detail, lost=self.lost)

    async def _keep_each(self, taken: list[_Waiting]) -> list[_Waiting]:
        """All together; one by one if something is wrong with any of them."""
        try:
            return await self._keep(taken)
        except DatabaseUnavailable:
            raise
        except Exception as error:
            if len(taken) == 1:
                run = taken[0].news.progress.run
                logger.debug("progress of run %s", run, exc_info=error)
                self._lose(1, "progress cannot be stored", f"run {run}: {error}")
                return []
            self._log.warning("progress batch failed", error=error)
        return [late for one in taken for late in await self._keep_each([one])]

    async def _keep(self, taken: list[_Waiting]) -> list[_Waiting]:
        """Write news down; returns what has to wait for somebody else's lock."""
        async with self._database.transaction() as connection:
            now = await store.read_now(connection)
            tellers = await _tellers(connection, {one.news.progress.run for one in taken})
            accepted, later = self._judge(taken, tellers, now)
            await _write(connection, [digest(tellers[run], told) for run, told in accepted.items()])
        return later

    def _judge(
        self, taken: list[_Waiting], tellers: dict[UUID, Teller], now: datetime
    ) -> tuple[dict[UUID, list[Progress]], list[_Waiting]]:
        accepted: dict[UUID, list[Progress]] = {}
        later = []
        for one in taken:
            run = one.news.progress.run
            refused = refusal(tellers.get(run), one.news, now=now)
            if refused is None:
                accepted.setdefault(run, []).append(one.news.progress)
            elif run not in tellers and one.tries < _MOST_TRIES:
                later.append(_Waiting(one.news, one.tries + 1))
            else:
                self._lose(1, "progress refused", f"run {run} by {one.news.worker}: {refused}")
        return accepted, later


async def _tellers(connection: Connection, runs: set[UUID]) -> dict[UUID, Teller]:
    rows = await connection.fetch(progress_queries["tellers"], sorted(runs))
    return {row["run_id"]: _teller(row) for row in rows}


def _teller(row: Any) -> Teller:
    return Teller(
        run=row["run_id"],
        lease=row["lease_id"],
        token=row["token"],
        claimed_by=row["claimed_by"],
        ended_at=row["ended_at"],
        log_bytes=row["log_bytes"],
    )


async def _write(connection: Connection, kept: Sequence[Progress]) -> None:
    if not kept:
        return
    lines = [(one.run, line) for one in kept for line in one.lines]
    await connection.execute(
        progress_queries["keep"],
        [one.run for one in kept],
        [one.number for one in kept],
        json_array(_told(one) for one in kept),
        [one.dropped for one in kept],
        [run for run, _ in lines],
        [line.number for _, line in lines],
        [line.at for _, line in lines],
        [line.level for _, line in lines],
        [line.message for _, line in lines],
        json_array(line.fields for _, line in lines),
        [size_of(line) for _, line in lines],
    )


def _told(kept: Progress) -> dict[str, Any]:
    return {
        "number": kept.number,
        "at": kept.at,
        "percent": kept.percent,
        "message": kept.message,
    }
