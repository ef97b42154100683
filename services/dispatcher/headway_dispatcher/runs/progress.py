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
from headway_decisions.runs.report_limits import News
from headway_jetstream_kit import Broker, Msg
from headway_jetstream_kit.limited_log import LimitedLog
from headway_postgres_kit import Database, DatabaseUnavailable
from headway_service_kit.passes import Wakeup
from headway_tracing.log import get_logger
from msgspec import structs

from headway_dispatcher import store
from headway_dispatcher.store import progress_queries

BATCH = 500
_MOST_WAITING = 10_000


class ProgressDesk:
    """Receives reports, for one dispatcher process."""

    def __init__(self, database: Database, broker: Broker) -> None:
        self._database = database
        self._broker = broker
        self._waiting: list[News] = []
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
        self._wait([News(worker=worker, lease=lease, progress=progress)])
        self.arrived.call()

    async def run_once(self) -> float | None:
        """Write a batch of reports."""
        taken, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
        if not taken:
            return None
        try:
            await self._write_each(taken)
        except DatabaseUnavailable:
            self._wait(taken)
            raise
        return 0.0 if self._waiting else None

    def _wait(self, more: Sequence[News]) -> None:
        room = max(_MOST_WAITING - len(self._waiting), 0)
        self._waiting += more[:room]
        if len(more) > room:
            self._drop(len(more) - room, "progress queue full", f"{_MOST_WAITING} wait")

    def _drop(self, count: int, reason: str, detail: str) -> None:
        self.lost += count
        self._log.warning(reason, count=count, detail=detail, lost=self.lost)

    async def _write_each(self, taken: list[News]) -> None:
        """Write reports together, or one by one if that fails."""
        try:
            await self._write(taken)
            return
        except DatabaseUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - a bad report must not block the others
            if len(taken) == 1:
                run = taken[0].progress.run
                self._drop(1, "progress cannot be stored", f"run {run}: {error}")
                return
            self._log.warning("progress batch failed", error=error)
        for report in taken:
            await self._write_each([report])

    async def _write(self, taken: list[News]) -> None:
        accepted: dict[UUID, list[Progress]] = {}
        async with self._database.transaction() as connection:
            now = await store.read_now(connection)
            rows = await connection.fetch(
                progress_queries["reporting_runs"],
                list({report.progress.run for report in taken}),
                list({report.lease for report in taken}),
            )
            runs = {row["run"]: msgspec.convert(dict(row), report_limits.Teller) for row in rows}
            for report in taken:
                run = report.progress.run
                refused = report_limits.refusal(runs.get(run), report, now=now)
                if refused is None:
                    accepted.setdefault(run, []).append(report.progress)
                else:
                    self._drop(1, "progress refused", f"run {run} by {report.worker}: {refused}")
            if accepted:
                kept = [
                    report_limits.digest(runs[run], reports) for run, reports in accepted.items()
                ]
                lines = [
                    structs.asdict(line) | {"run": report.run, "size": report_limits.size_of(line)}
                    for report in kept
                    for line in report.lines
                ]
                await connection.execute(progress_queries["keep"], kept, lines)
