"""Answer read-only requests: plan, preview, explain, ledger checks, inputs, and origins of work."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import msgspec
from headway_contract import manifests as messages
from headway_contract import subjects
from headway_contract.work_queue import InputAnswer, InputQuestion, OriginAnswer, WorkQuestion
from headway_decisions.capacity.keys import InvalidKey
from headway_decisions.firing.manifest_state import hold_of
from headway_decisions.timing import timing
from headway_decisions.timing.timing import Timing
from headway_decisions.wording import utc
from headway_errors import Conflict
from headway_jetstream_kit import Broker
from headway_postgres_kit import Database
from msgspec import UNSET, UnsetType

from headway_scheduler.declare.plan import plan
from headway_scheduler.explain.explain import explain
from headway_scheduler.explain.ledger_check import check_page
from headway_scheduler.explain.work_states import read_states
from headway_scheduler.fire.decide import concurrency_key
from headway_scheduler.fire.preview import note_of, previewed
from headway_scheduler.lookup import aware, find_manifest, input_problem, queries, reading
from headway_scheduler.settings import SchedulerSettings
from headway_scheduler.store import manifests

# The function that answers a request, by subject; the registry has the types.
Answers = dict[str, Callable[[Any], Awaitable[Any]]]


@dataclass(frozen=True)
class Questions:
    """Answers questions for one scheduler process."""

    database: Database
    broker: Broker
    settings: SchedulerSettings

    def answers(self) -> Answers:
        """Return the functions that answer questions, by subject."""
        return {
            subjects.PREVIEW_QUESTION: self.preview,
            subjects.EXPLAIN_QUESTION: self.explain,
            subjects.LEDGER_QUESTION: self.ledger,
            subjects.PLAN_QUESTION: partial(plan, self.database, policy=self.settings.prune),
            subjects.INPUT_QUESTION: self.input,
            subjects.ORIGIN_QUESTION: self.origin,
        }

    async def preview(self, question: messages.PreviewQuestion) -> messages.PreviewAnswer:
        """Return the next fire times of a manifest."""
        async with reading(self.database) as (connection, now):
            row = await find_manifest(connection, question.manifest)
        kept = _timing_of(row)
        after = None if question.after is None else aware(question.after)
        # In a thread, because the tick shares this process.
        fires = await asyncio.to_thread(
            previewed, row, kept, count=question.count, after=after, now=now, each=question.each
        )
        return messages.PreviewAnswer(
            manifest=question.manifest,
            zone=kept.zone,
            fires=fires,
            note=note_of(row, kept, hold_of(row), has_times=bool(fires)),
        )

    async def explain(self, question: messages.ExplainQuestion) -> messages.ExplainAnswer:
        """Explain why a manifest ran, or did not."""
        at = None if question.at is None else aware(question.at)
        async with reading(self.database) as (connection, now):
            row = await find_manifest(connection, question.manifest)
            _timing_of(row)
            answer = await explain(
                connection, row, at=at, now=now, kept_days=self.settings.history_days
            )
        states = await read_states(self.broker, answer.works)
        return msgspec.structs.replace(
            answer, text=" ".join([answer.text, *(state.text for state in states)])
        )

    async def ledger(self, question: messages.LedgerQuestion) -> messages.LedgerAnswer:
        """Compare expected fire times with the ledger."""
        if question.since is not None:
            question = msgspec.structs.replace(question, since=aware(question.since))
        kept = timedelta(days=self.settings.history_days)
        return await check_page(self.database, question, kept=kept)

    async def input(self, question: InputQuestion) -> InputAnswer:
        """Return whether a job takes an input, and the concurrency key of work with it."""
        async with self.database.acquire() as connection:
            job = await connection.fetchrow(manifests["jobs"], [question.job])
            keyed = await connection.fetchrow(
                manifests["key_templates"], question.job, question.manifest_id
            )
        schema, takes_input = (
            (None, True) if job is None else (job["input_schema"], job["takes_input"])
        )
        problem = input_problem(question.job, schema, takes_input, question.input)
        key: str | UnsetType | None = UNSET
        if problem is None and keyed is not None and question.group is not None:
            try:
                key = concurrency_key(
                    keyed["concurrency_key"],
                    input=question.input,
                    manifest=keyed["external_id"],
                    group=keyed["group_name"] or str(question.group),
                    job=question.job,
                )
            except InvalidKey as error:
                problem = str(error)
        return InputAnswer(problem=problem or "", known=job is not None, concurrency_key=key)

    async def origin(self, question: WorkQuestion) -> OriginAnswer:
        """Describe work that the dispatcher does not know: not sent, refused or long settled."""
        async with self.database.acquire() as connection:
            row = await connection.fetchrow(queries["origin"], question.work)
        if row is None:
            return OriginAnswer()
        state, text, since = _state(row)
        return OriginAnswer(
            state=state,
            text=text,
            manifest=row["manifest"],
            group=row["group_name"],
            job=row["job"],
            since=since,
        )


def _timing_of(row: Any) -> Timing:
    """Return the timing of a manifest; raises `Conflict` if it cannot be read here."""
    try:
        kept = msgspec.convert(row["timing"], Timing)
        timing.local(kept, row["declared_at"])
    except (msgspec.ValidationError, ValueError) as error:
        raise Conflict(f"the timing of {row['external_id']!r} cannot be read: {error}") from error
    return kept


def _state(row: Any) -> tuple[str, str, datetime]:
    if row["enqueued_state"] in ("waiting", "refused"):
        since, state, text = row["enqueued_at"], "enqueued", "waits for a scheduler to take it up"
        if row["enqueued_state"] == "refused":
            remedy = "enqueue it again once that is fixed, see 'headway enqueued'"
            state, text = "refused", f"refused: {row['reason']}; {remedy}"
        return state, f"was enqueued at {utc(since)} and {text}", since
    if row["queued_at"] is None:
        since = row["settled_at"] or row["decided_at"]
        return "settled", f"was settled at {utc(since)}, and its details are deleted", since
    since = row["queued_at"]
    text = "is on its way to the dispatcher, which has not taken it in yet"
    return "on_its_way", f"was queued at {utc(since)} and {text}", since
