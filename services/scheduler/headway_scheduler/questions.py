"""Plan, preview, explain, ledger checks, and questions of the dispatcher: read-only requests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import msgspec
from headway_contract import subjects
from headway_contract.definitions import ApplyAnswer, ApplyRequest
from headway_contract.manifests import (
    ExplainAnswer,
    ExplainQuestion,
    LedgerAnswer,
    LedgerQuestion,
    PreviewAnswer,
    PreviewQuestion,
)
from headway_contract.work_queue import InputAnswer, InputQuestion, OriginAnswer, WorkQuestion
from headway_decisions.capacity.keys import InvalidKey, render_key
from headway_decisions.timing import timing
from headway_decisions.timing.timing import Timing
from headway_errors import Conflict, Invalid
from headway_jetstream_kit.endpoints import Endpoint
from headway_postgres_kit import Clock, Connection, Database
from msgspec import UNSET

from headway_scheduler.declare.plan import plan
from headway_scheduler.explain.explain import explain
from headway_scheduler.explain.ledger_check import check_page
from headway_scheduler.explain.origin import origin
from headway_scheduler.fire.manifest import hold_of
from headway_scheduler.fire.preview import note_of, previewed
from headway_scheduler.input_checks import problem_of_given
from headway_scheduler.lookup import find_manifest
from headway_scheduler.requests import typed
from headway_scheduler.settings import SchedulerSettings
from headway_scheduler.store import manifests

# Outside of these, calendars and zones are guesses.
_KNOWN_YEARS = range(1970, 2200)


class Questions:
    """Answers questions for one scheduler process."""

    def __init__(self, database: Database, settings: SchedulerSettings, *, clock: Clock) -> None:
        self._database = database
        self._settings = settings
        self._clock = clock

    def endpoints(self) -> dict[str, Endpoint]:
        """The subjects on which questions come."""
        return {
            subjects.PREVIEW_QUESTION: typed(PreviewQuestion, self.preview),
            subjects.EXPLAIN_QUESTION: typed(ExplainQuestion, self.explain),
            subjects.LEDGER_QUESTION: typed(LedgerQuestion, self.ledger),
            subjects.PLAN_QUESTION: typed(ApplyRequest, self.plan),
            subjects.INPUT_QUESTION: typed(InputQuestion, self.input),
            subjects.ORIGIN_QUESTION: typed(WorkQuestion, self.origin),
        }

    async def preview(self, question: PreviewQuestion) -> PreviewAnswer:
        """The next fire times of a manifest."""
        async with self._reading() as (connection, now):
            row = await find_manifest(connection, question.manifest)
        kept = timing_of(row)
        after = None if question.after is None else aware(question.after)
        # In a thread, because the tick shares this process.
        fires = await asyncio.to_thread(
            previewed,
            row,
            kept,
            count=question.count,
            after=after,
            now=now,
            each=question.each,
        )
        return PreviewAnswer(
            manifest=question.manifest,
            zone=kept.zone,
            fires=fires,
            note=note_of(row, kept, hold_of(row), has_times=bool(fires)),
        )

    async def explain(self, question: ExplainQuestion) -> ExplainAnswer:
        """Why a manifest ran, or did not."""
        at = None if question.at is None else aware(question.at)
        async with self._reading() as (connection, now):
            row = await find_manifest(connection, question.manifest)
            timing_of(row)
            return await explain(
                connection, row, at=at, now=now, kept_days=self._settings.history_days
            )

    async def ledger(self, question: LedgerQuestion) -> LedgerAnswer:
        """Whether the ledger tells of every fire time, once."""
        if question.since is not None:
            question = msgspec.structs.replace(question, since=aware(question.since))
        async with self._reading() as (connection, now):
            return await check_page(
                connection, question, kept=timedelta(days=self._settings.history_days), now=now
            )

    async def plan(self, request: ApplyRequest) -> ApplyAnswer:
        """What applying definitions would change."""
        async with self._reading() as (connection, now):
            return await plan(connection, request, policy=self._settings.prune, now=now)

    async def input(self, question: InputQuestion) -> InputAnswer:
        """Whether a job takes an input, and which concurrency key work has with it."""
        async with self._database.acquire() as connection:
            row = await connection.fetchrow(manifests["jobs"], [question.job])
            keyed = await connection.fetchrow(
                manifests["key_templates"], question.job, question.manifest_id
            )
        problem = (
            problem_of_given(question.job, None, True, question.input)  # noqa: FBT003
            if row is None
            else problem_of_given(
                question.job, row["input_schema"], row["takes_input"], question.input
            )
        )
        try:
            tells = not problem and keyed is not None and question.group is not None
            key = _key(question, keyed) if tells else UNSET
        except InvalidKey as error:
            problem, key = str(error), UNSET
        return InputAnswer(problem=problem or "", known=row is not None, concurrency_key=key)

    async def origin(self, question: WorkQuestion) -> OriginAnswer:
        """What became of work that the dispatcher does not know."""
        async with self._database.acquire() as connection:
            return await origin(connection, question.work)

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[tuple[Connection, datetime]]:
        """One picture of the database for all that an answer reads; it cannot write."""
        async with (
            self._database.acquire() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            yield connection, await self._clock.now(connection)


def aware(at: datetime) -> datetime:
    """A time with its offset; without one it could mean anything."""
    if at.tzinfo is None:
        raise Invalid(
            f"the time {at.isoformat()} has no offset: write one, as in {at.isoformat()}Z"
        )
    if at.year not in _KNOWN_YEARS:
        first, last = _KNOWN_YEARS[0], _KNOWN_YEARS[-1]
        raise Invalid(f"the year of {at.isoformat()} is not between {first} and {last}")
    return at


def timing_of(row: Any) -> Timing:
    """The timing of a manifest; refuses one that cannot be read here."""
    try:
        kept = msgspec.convert(row["timing"], Timing)
        timing.local(kept, row["declared_at"])
    except (msgspec.ValidationError, ValueError) as error:
        raise Conflict(f"the timing of {row['external_id']!r} cannot be read: {error}") from error
    return kept


def _key(question: InputQuestion, keyed: Any) -> str | None:
    """The key that work with an input has by its manifest or its job, or `InvalidKey`."""
    if keyed["concurrency_key"] is None:
        return None
    return render_key(
        keyed["concurrency_key"],
        input=question.input,
        manifest=keyed["external_id"],
        group=keyed["group_name"] or str(question.group),
        job=question.job,
    )
