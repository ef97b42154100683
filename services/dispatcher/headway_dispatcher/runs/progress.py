"""Progress and log lines of runs.

Reports come on core NATS, unfenced, and may be lost. They are collected and written together;
reports that cannot be written now wait, up to a limit. No decision depends on them.
"""

from collections.abc import Sequence
from uuid import UUID

import msgspec
from headway_clock import monotonic
from headway_contract import subjects
from headway_contract.envelope import decode_lenient
from headway_contract.worker_protocol import Progress
from headway_decisions.runs import report_limits
from headway_jetstream_kit import Broker, Msg
from headway_jetstream_kit.limited_log import LimitedLog
from headway_postgres_kit import Connection, Database, DatabaseUnavailable, json_array
from headway_service_kit.passes import Wakeup
from headway_tracing.log import get_logger
from msgspec import Struct

from headway_dispatcher import store
from headway_dispatcher.store import progress_queries

BATCH = 500
_MOST_WAITING = 10_000
# Attempts to write a report of a run whose row another transaction has locked.
_MOST_TRIES = 20
_RETRY_SECONDS = 0.05


class _Waiting(Struct):
    report: report_limits.News
    tries: int = 0


class ProgressDesk:
    """Receives reports, for one dispatcher process."""

    def __init__(self, database: Database, broker: Broker) -> None:
        self._database = database
        self._broker = broker
        self._waiting: list[_Waiting] = []
        self.arrived = Wakeup()
        # Dropped reports: too many, unreadable, or refused.
        self.lost = 0
        self._log = LimitedLog(get_logger(__name__))
        # A run reports a few times a second, and a lease of short runs once for each of them.
        self._of_leases = report_limits.FloodLimit(burst=1_000, per_second=50)
        # Over all leases, including invented ones.
        self._of_workers = report_limits.FloodLimit(burst=10_000, per_second=1_000)

    async def listen(self) -> None:
        """Share the reports with the other dispatchers."""
        await self._broker.client.subscribe(
            subjects.PROGRESS_SUBJECTS, queue=subjects.DISPATCHERS, cb=self._on_report
        )

    async def _on_report(self, message: Msg) -> None:
        now = monotonic()
        try:
            lease, worker = subjects.lease_and_worker(message.subject, kind="progress")
            if not (self._of_workers.admits(worker, now) and self._of_leases.admits(lease, now)):
                self._drop(1, "progress over the limit", f"lease {lease} of worker {worker}")
                return
            progress = decode_lenient(report_limits.storable_json(message.data), Progress)
        except (msgspec.DecodeError, ValueError) as error:
            self._drop(1, "progress unreadable", f"{message.subject}: {error}")
            return
        self._wait([_Waiting(report_limits.News(worker=worker, lease=lease, progress=progress))])
        self.arrived.call()

    async def run_once(self) -> float | None:
        """Write a batch of reports."""
        taken, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
        if not taken:
            return None
        try:
            again = await self._write_each(taken)
        except DatabaseUnavailable:
            self._wait(taken)
            raise
        self._wait(again)
        if again:
            return _RETRY_SECONDS
        return 0.0 if self._waiting else None

    def _wait(self, more: Sequence[_Waiting]) -> None:
        room = max(_MOST_WAITING - len(self._waiting), 0)
        self._waiting += more[:room]
        if len(more) > room:
            self._drop(len(more) - room, "progress queue full", f"{_MOST_WAITING} wait")

    def _drop(self, count: int, reason: str, detail: str) -> None:
        self.lost += count
        self._log.warning(reason, count=count, detail=detail, lost=self.lost)

    async def _write_each(self, taken: list[_Waiting]) -> list[_Waiting]:
        """Write reports together, or one by one if that fails; returns those to try again."""
        try:
            return await self._write(taken)
        except DatabaseUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - a bad report must not block the others
            if len(taken) == 1:
                run = taken[0].report.progress.run
                self._drop(1, "progress cannot be stored", f"run {run}: {error}")
                return []
            self._log.warning("progress batch failed", error=error)
        return [late for waiting in taken for late in await self._write_each([waiting])]

    async def _write(self, taken: list[_Waiting]) -> list[_Waiting]:
        """Write reports; returns those whose run another transaction has locked."""
        accepted: dict[UUID, list[Progress]] = {}
        later = []
        async with self._database.transaction() as connection:
            now = await store.read_now(connection)
            wanted = sorted({waiting.report.progress.run for waiting in taken})
            rows = await connection.fetch(progress_queries["reporting_runs"], wanted)
            runs = {row["run"]: msgspec.convert(dict(row), report_limits.Teller) for row in rows}
            for waiting in taken:
                report, run = waiting.report, waiting.report.progress.run
                refused = report_limits.refusal(runs.get(run), report, now=now)
                if refused is None:
                    accepted.setdefault(run, []).append(report.progress)
                elif run not in runs and waiting.tries < _MOST_TRIES:
                    later.append(_Waiting(report, waiting.tries + 1))
                else:
                    self._drop(1, "progress refused", f"run {run} by {report.worker}: {refused}")
            if accepted:
                kept = [
                    report_limits.digest(runs[run], reports) for run, reports in accepted.items()
                ]
                await _store(connection, kept)
        return later


async def _store(connection: Connection, kept: Sequence[Progress]) -> None:
    lines = [(report.run, line) for report in kept for line in report.lines]
    shown = ("number", "at", "percent", "message")
    await connection.execute(
        progress_queries["keep"],
        [report.run for report in kept],
        [report.number for report in kept],
        json_array({name: getattr(report, name) for name in shown} for report in kept),
        [report.dropped for report in kept],
        [run for run, _ in lines],
        [line.number for _, line in lines],
        [line.at for _, line in lines],
        [line.level for _, line in lines],
        [line.message for _, line in lines],
        json_array(line.fields for _, line in lines),
        [report_limits.size_of(line) for _, line in lines],
    )
