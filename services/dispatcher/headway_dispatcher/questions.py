"""Questions about work, runs, workers, dead letters and room. Nothing here changes anything."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec
from headway_contract import subjects
from headway_contract.dispatching import (
    Attempt,
    DeadLetterAnswer,
    DeadLetterQuestion,
    DeadLettersAnswer,
    DeadLettersQuestion,
    DeadLetterStatus,
    GroupOccupancy,
    OccupancyAnswer,
    OccupancyQuestion,
    RunAnswer,
    RunQuestion,
    RunsAnswer,
    RunsQuestion,
    RunStatus,
    WorkAnswer,
    WorkersAnswer,
    WorkersQuestion,
    WorkerStatus,
    WorkQuestion,
    WorksAnswer,
    WorksQuestion,
    WorkStatus,
)
from headway_contract.lifecycle import Failure
from headway_contract.progress import LogLine
from headway_contract.settled import InputChange
from headway_decisions.retries import dead_letters
from headway_errors import NotFound
from headway_jetstream_kit.endpoints import Endpoint
from headway_postgres_kit import Connection, Database
from msgspec import structs

from headway_dispatcher import store
from headway_dispatcher.pages import aware, cut, read_place
from headway_dispatcher.requests import typed
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.store import question_queries as queries

_RUNS_OF_WORK = 100


class Questions:
    """Answers questions for one dispatcher process."""

    def __init__(self, database: Database, settings: DispatcherSettings) -> None:
        self._database = database
        self._settings = settings

    def endpoints(self) -> dict[str, Endpoint]:
        """The subjects on which questions come."""
        return {
            subjects.DEAD_LETTERS_QUESTION: typed(DeadLettersQuestion, self.dead_letters),
            subjects.DEAD_LETTER_QUESTION: typed(DeadLetterQuestion, self.dead_letter),
            subjects.WORKS_QUESTION: typed(WorksQuestion, self.works),
            subjects.WORK_QUESTION: typed(WorkQuestion, self.work),
            subjects.RUNS_QUESTION: typed(RunsQuestion, self.runs),
            subjects.RUN_QUESTION: typed(RunQuestion, self.run),
            subjects.WORKERS_QUESTION: typed(WorkersQuestion, self.workers),
            subjects.OCCUPANCY_QUESTION: typed(OccupancyQuestion, self.occupancy),
        }

    async def dead_letters(self, question: DeadLettersQuestion) -> DeadLettersAnswer:
        """One page of dead letters."""
        asked, place = question.filter, read_place(question.after)
        print_, version = read_fingerprint(asked.fingerprint)
        async with self._reading() as connection:
            rows = await connection.fetch(
                queries["letters"],
                asked.group,
                asked.job,
                asked.manifest,
                print_,
                version,
                asked.state,
                aware(asked.created_after, "created_after"),
                aware(asked.created_before, "created_before"),
                *place,
                question.limit + 1,
            )
        page, last, more = cut(rows, question.limit, "created_at")
        return DeadLettersAnswer(
            dead_letters=[_letter_status(row) for row in page], last=last, more=more
        )

    async def dead_letter(self, question: DeadLetterQuestion) -> DeadLetterAnswer:
        """One dead letter in full."""
        async with self._reading() as connection:
            row = await connection.fetchrow(queries["letter"], question.id)
        if row is None:
            raise NotFound(
                f"there is no dead letter {question.id}, and none of such work: "
                "see 'headway dead-letters list --state all'"
            )
        return DeadLetterAnswer(
            status=_letter_status(row),
            cause=row["cause"],
            input=row["input"],
            failure=msgspec.convert(row["failure"], Failure),
            runs=msgspec.convert(row["runs"], list[Attempt]),
            edit=msgspec.convert(row["edit"] or [], list[InputChange]),
        )

    async def works(self, question: WorksQuestion) -> WorksAnswer:
        """One page of work."""
        place = read_place(question.after)
        asked = (question.group, question.job, question.manifest_id, question.reason, *place)
        settled = question.state == "settled"
        most = question.limit + 1
        async with self._reading() as connection:
            rows = await (
                connection.fetch(queries["settled_works"], *asked, most)
                if settled
                else connection.fetch(queries["unsettled_works"], question.state, *asked, most)
            )
        page, last, more = cut(rows, question.limit, "settled_at" if settled else "queued_at")
        return WorksAnswer(works=[_work_status(row) for row in page], last=last, more=more)

    async def work(self, question: WorkQuestion) -> WorkAnswer:
        """One piece of work in full."""
        async with self._reading() as connection:
            row = await connection.fetchrow(queries["work"], question.id)
            if row is None:
                raise NotFound(
                    f"the dispatcher knows no work and no run {question.id}: it may still be on "
                    "its way, or be forgotten; see 'headway work'"
                )
            of_work = RunsQuestion(work=row["id"], limit=_RUNS_OF_WORK)
            runs = await _page_of_runs(connection, of_work)
            letters = await connection.fetch(queries["letters_of"], row["id"])
        return WorkAnswer(
            status=_work_status(row),
            input=row["input"],
            retry=row["terms"].get("retry", {}),
            timeout_seconds=row["terms"].get("timeout_seconds", 0.0),
            runs=[_run_status(one) for one in runs],
            dead_letters=[one["id"] for one in letters],
        )

    async def runs(self, question: RunsQuestion) -> RunsAnswer:
        """One page of runs."""
        async with self._reading() as connection:
            rows = await _page_of_runs(
                connection, structs.replace(question, limit=question.limit + 1)
            )
        page, last, more = cut(rows, question.limit, "created_at", "run_id")
        return RunsAnswer(runs=[_run_status(row) for row in page], last=last, more=more)

    async def run(self, question: RunQuestion) -> RunAnswer:
        """One run in full."""
        async with self._reading() as connection:
            row = await connection.fetchrow(queries["run"], question.run)
            lines = await connection.fetch(queries["run_log"], question.run)
        if row is None:
            raise NotFound(f"there is no run {question.run}: see 'headway runs'")
        failure = row["failure"]
        return RunAnswer(
            status=_run_status(row),
            lease=row["lease_id"],
            input=row["input"],
            output=row["output"],
            failure=None if failure is None else msgspec.convert(failure, Failure),
            trace_id=row["trace_id"],
            percent=(row["progress"] or {}).get("percent"),
            message=(row["progress"] or {}).get("message"),
            log=[LogLine(**dict(line)) for line in lines],
            log_dropped=row["log_dropped"],
        )

    async def workers(self, question: WorkersQuestion) -> WorkersAnswer:
        """One page of workers."""
        silence = timedelta(seconds=self._settings.orphan_timeout_seconds)
        async with self._reading() as connection:
            heard_since = await store.read_now(connection) - silence
            rows = await connection.fetch(
                queries["workers"], heard_since, question.after, question.limit + 1
            )
        page = rows[: question.limit]
        return WorkersAnswer(
            workers=[_worker_status(row) for row in page],
            last=page[-1]["name"] if page else "",
            more=len(rows) > question.limit,
        )

    async def occupancy(self, question: OccupancyQuestion) -> OccupancyAnswer:
        """What the groups have under way, and what waits in them."""
        async with self._reading() as connection:
            limits = await connection.fetch(queries["group_limits"], question.group)
            active = await connection.fetch(queries["active_by_group"], question.group)
            waiting = await connection.fetch(queries["waiting_by_group"], question.group)
            letters = await connection.fetch(queries["letters_by_group"], question.group)
        runs = {(row["group_name"], row["state"]): row["runs"] for row in active}
        awaiting = {row["group_name"]: row["letters"] for row in letters}
        reasons: dict[str, dict[str, int]] = {}
        for row in waiting:
            reasons.setdefault(row["group_name"], {})[row["reason"]] = row["works"]
        limited = {row["name"]: row for row in limits}
        # A group of which no limits are known has none, but may have work.
        names = {*limited, *(group for group, _ in runs), *reasons, *awaiting}
        if question.group is not None and not names:
            raise NotFound(f"no work of a group {question.group!r} has come: see 'headway groups'")
        return OccupancyAnswer(
            max_active=self._settings.max_active,
            groups=[
                GroupOccupancy(
                    group=name,
                    max_active=limited[name]["max_active"] if name in limited else None,
                    enabled=limited[name]["enabled"] if name in limited else True,
                    pending=runs.get((name, "pending"), 0),
                    in_progress=runs.get((name, "in_progress"), 0),
                    waiting=reasons.get(name, {}),
                    dead_letters=awaiting.get(name, 0),
                )
                for name in sorted(names)
            ],
        )

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[Connection]:
        """One picture of the database for all that an answer reads; it cannot write."""
        async with (
            self._database.acquire() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            await connection.execute(queries["plan_anew"])
            yield connection


def read_fingerprint(given: str | None) -> tuple[str | None, str | None]:
    """A fingerprint that was asked for, and the version with it; none means any."""
    return (None, None) if given is None else dead_letters.parse_fingerprint(given)


def _letter_status(row: Any) -> DeadLetterStatus:
    return DeadLetterStatus(
        dead_letter=row["id"],
        work=row["work_id"],
        group=row["group_name"],
        fingerprint=dead_letters.format_fingerprint(row["fingerprint"], row["code_version"]),
        failure_kind=row["failure_kind"] or "",
        failure_message=row["failure_message"] or "",
        **{
            name: row[name]
            for name in (
                *("round", "manifest", "job", "reason", "attempts", "state", "created_at"),
                *("resolved_at", "actor", "note", "retry_asked_at", "retry_asked_by", "waits_for"),
            )
        },
    )


def _work_status(row: Any) -> WorkStatus:
    return WorkStatus(
        work=row["id"],
        group=row["group_name"],
        run=row["run_id"],
        wait_reason=row["waits_for"],
        **{
            name: row[name]
            for name in (
                *("round", "manifest", "job", "cause", "state", "outcome"),
                *("priority", "attempts", "runs", "due_at", "queued_at", "not_before"),
                *("settled_at", "cancel_requested_at", "cancel_reason"),
            )
        },
    )


async def _page_of_runs(connection: Connection, question: RunsQuestion) -> list[Any]:
    """The rows of a page, with as many runs as the question's limit."""
    rows: list[Any] = await connection.fetch(
        queries["runs"],
        question.state,
        question.group,
        question.job,
        question.manifest_id,
        question.work,
        question.worker,
        *read_place(question.after),
        question.limit,
        aware(question.since, "since"),
        aware(question.before, "before"),
    )
    return rows


def _run_status(row: Any) -> RunStatus:
    return RunStatus(
        run=row["run_id"],
        work=row["work_id"],
        group=row["group_name"],
        **{
            name: row[name]
            for name in (
                *("round", "attempt", "manifest", "job", "state", "worker", "host", "due_at"),
                *("created_at", "started_at", "finished_at", "failure_kind", "failure_message"),
                "cancel_reason",
            )
        },
    )


def _worker_status(row: Any) -> WorkerStatus:
    return WorkerStatus(
        worker=row["name"],
        runs=list(row["runs"]),
        jobs=list(row["jobs"]),
        **{
            name: row[name]
            for name in (
                *("host", "sdk", "sdk_version", "code_version", "slots", "alive", "draining"),
                *("first_heard_at", "last_heard_at"),
            )
        },
    )
