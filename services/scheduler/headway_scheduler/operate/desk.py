"""Receive requests, and carry each out in a transaction of its own."""

import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import msgspec
from headway.define.definitions import InvalidDefinitions
from headway.define.packing import problems_of, unpack
from headway_contract import definitions, manifests, operations, registry, subjects, work_queue
from headway_contract.fields import Changed
from headway_contract.fitting import misfits_of
from headway_errors import Conflict, RequestFailed
from headway_jetstream_kit import Broker
from headway_jetstream_kit.endpoints import serve, typed
from headway_postgres_kit import Database
from headway_service_kit.idempotency import Keyed
from headway_service_kit.passes import Wakeup
from headway_service_kit.settings_text import settings_in_effect
from msgspec import Struct

from headway_scheduler.declare.checks import request_errors
from headway_scheduler.declare.startup import apply
from headway_scheduler.explain.work_states import read_states
from headway_scheduler.lookup import select_manifests
from headway_scheduler.notifications.delivery import Delivery
from headway_scheduler.operate import (
    applications,
    backfill,
    cancel,
    changes,
    enqueue,
    pause,
    triggers,
)
from headway_scheduler.outcomes import activate
from headway_scheduler.questions import Answers, Questions
from headway_scheduler.settings import SchedulerSettings
from headway_scheduler.store import IDEMPOTENCY, operator, writing

# The lists of manifests in an answer, and how many it names.
_LISTS = ("created", "changed", "pruned", "disabled")
_MOST_LISTED = 1000
# Manifests that one request changes, so that it is answered while the client waits.
_MOST_CHANGED = 500

# States of work in which it cannot be brought forward any more.
_BEGUN = ("dispatched", "settled")

Stored = TypeVar("Stored", bound=Struct)
# Carries a request out: takes the connection, the request and `now`; a text becomes `Changed`.
Act = Callable[..., Awaitable[Any]]

# Requests that one transaction carries out. The answer that is stored by the key of a request has
# its type here; `None` if the function itself recognises a repeated key, or if there is no key.
_REQUESTS: dict[str, tuple[Act, type[Struct] | None]] = {
    subjects.CHANGE_REQUEST: (changes.change, None),
    subjects.CHANGE_GROUP_REQUEST: (changes.change_group, None),
    subjects.CHANGE_JOB_REQUEST: (changes.change_job, None),
    subjects.DELETE_REQUEST: (changes.delete, Changed),
    subjects.PAUSE_REQUEST: (pause.pause, manifests.PauseAnswer),
    subjects.BACKFILL_REQUEST: (backfill.backfill, None),
    subjects.RENAME_APP_REQUEST: (applications.rename, Changed),
    subjects.RETIRE_APP_REQUEST: (applications.retire, Changed),
    subjects.GIVE_BACK_APP_REQUEST: (applications.give_back, Changed),
    subjects.ENQUEUE_REQUEST: (enqueue.enqueue, None),
    subjects.DISMISS_REQUEST: (enqueue.dismiss, None),
}


@dataclass(frozen=True)
class Desk:
    """Answers requests for one scheduler process; all schedulers share them."""

    database: Database
    broker: Broker
    settings: SchedulerSettings
    name: str
    # The passes that continue the work of requests, and the pass that ends pauses.
    wakeups: Sequence[Wakeup]
    windows: Wakeup
    delivery: Delivery | None = None

    async def listen(self) -> None:
        """Share the requests with all other schedulers."""
        answers: Answers = {
            **Questions(self.database, self.broker, self.settings).answers(),
            **{
                subject: partial(self._carry_out, act, answer)
                for subject, (act, answer) in _REQUESTS.items()
            },
            subjects.ACTIVATION_QUESTION: self.may_activate,
            subjects.APPLY_REQUEST: self.apply,
            subjects.TRIGGER_REQUEST: self.trigger,
            subjects.RESUME_REQUEST: self.resume,
            subjects.CHANGE_MANY_REQUEST: self.change_many,
            subjects.NOTIFY_TEST_REQUEST: self.test_notification,
            subjects.SCHEDULER_SETTINGS_QUESTION: self.read_settings,
            subjects.CANCEL_OUTSTANDING_REQUEST: self.cancel,
        }
        await serve(
            self.broker,
            service="headway-scheduler",
            queue=subjects.SCHEDULERS,
            endpoints={
                subject: typed(registry.REQUESTS[subject][0], answer, misfits=misfits_of)
                for subject, answer in answers.items()
            },
        )

    async def may_activate(
        self, question: manifests.ActivationQuestion
    ) -> manifests.ActivationAnswer:
        """Return why runs of a manifest may not activate these dependents."""
        async with self.database.acquire() as connection:
            found = await activate.problems(connection, question.manifest, question.activations)
        return manifests.ActivationAnswer(problems=found)

    async def apply(self, request: definitions.ApplyRequest) -> definitions.ApplyAnswer:
        """Store definitions and prune undeclared manifests.

        That takes several transactions, and repeating it changes nothing: a key only makes the
        answer the same.
        """
        known = await self._lookup(request, definitions.ApplyAnswer)
        if known is not None:
            return known
        with request_errors():
            defined = unpack(request.definitions)
            problems = problems_of(defined)
            if problems:
                raise InvalidDefinitions(problems)
            applied = await apply(
                self.database,
                defined,
                policy=request.prune or self.settings.prune,
                source=operator(request),
                declares="files",
                take_over=request.take_over,
                may_fire=self.settings.tick == "on",
            )
        self._wake()
        lists = {verb: getattr(applied, verb) for verb in _LISTS}
        shortened = [
            f"{len(ids)} manifests were {verb}, of which {_MOST_LISTED} are listed"
            for verb, ids in lists.items()
            if len(ids) > _MOST_LISTED
        ]
        answer = msgspec.structs.replace(
            applied,
            warnings=[*applied.warnings, *shortened],
            **{verb: ids[:_MOST_LISTED] for verb, ids in lists.items()},
        )
        return await self._store(request, answer)

    async def trigger(self, request: manifests.TriggerRequest) -> manifests.TriggerAnswer:
        """Trigger a manifest; raises `Conflict` if its overlap policy refuses that.

        The refusal is a decision of the ledger, so it is committed before. The trigger hands over
        its messages itself.
        """
        answer = await self._run(partial(triggers.trigger, begun=None), None, request)
        if isinstance(answer, triggers.Busy):
            # The dispatcher is asked without any lock. Without its answer the work may still wait.
            states = await read_states(self.broker, answer.works)
            begun = {found.work for found in states if found.state in _BEGUN}
            answer = await self._run(partial(triggers.trigger, begun=begun), None, request)
        if answer.result == triggers.REFUSED:
            raise Conflict(answer.text)
        result: manifests.TriggerAnswer = answer
        return result

    async def resume(self, request: manifests.ResumeRequest) -> manifests.ResumeAnswer:
        """End the pause of manifests; the fires that follow are computed before."""
        answer = manifests.ResumeAnswer
        known = None if request.dry_run else await self._lookup(request, answer)
        if known is not None:
            return known
        foreseen = await pause.foresee(self.database, request)
        act = partial(pause.resume, foreseen=foreseen)
        result: manifests.ResumeAnswer = await self._carry_out(act, answer, request)
        return result

    async def change_many(self, request: manifests.ChangeManyRequest) -> manifests.ManyChanged:
        """Enable, disable or run a page of manifests, each in a transaction of its own.

        Enabling again changes nothing, and a trigger has its key, so the answer may be stored
        afterwards.
        """
        known = None if request.dry_run else await self._lookup(request, manifests.ManyChanged)
        if known is not None:
            return known
        names = await self._selected(request)
        page = names[:_MOST_CHANGED]
        results = [manifests.ManifestResult(manifest=name, done=False) for name in page]
        if not request.dry_run:
            results = [await self._change_one(name, request) for name in page]
        answer = manifests.ManyChanged(
            results=results, last=page[-1] if page else "", more=len(names) > len(page)
        )
        return answer if request.dry_run else await self._store(request, answer)

    async def _selected(self, request: manifests.ChangeManyRequest) -> list[str]:
        """Return the manifests of a request from its page on; unknown names are rejected later."""
        if request.manifests and request.group is None and not (request.labels or request.all):
            return list(dict.fromkeys(request.manifests))
        async with self.database.acquire() as connection:
            rows = await select_manifests(connection, request)
        return [row["external_id"] for row in rows if row["external_id"] > request.after]

    async def _change_one(
        self, name: str, request: manifests.ChangeManyRequest
    ) -> manifests.ManifestResult:
        try:
            answer: Any
            if request.action == "run":
                answer = await self.trigger(
                    manifests.TriggerRequest(manifest=name, key=request.key, actor=request.actor)
                )
            else:
                change = manifests.ChangeRequest(
                    manifest=name, enabled=request.action == "enable", actor=request.actor
                )
                answer = await self._carry_out(changes.change, None, change)
        except RequestFailed as error:
            return manifests.ManifestResult(manifest=name, done=False, text=str(error))
        return manifests.ManifestResult(manifest=name, done=True, text=answer.text)

    async def test_notification(self, request: operations.NotifyTestRequest) -> Changed:
        """Send a test notification to the webhook once."""
        if self.delivery is None:
            raise Conflict(
                "no webhook is configured, so no notification is sent: set HEADWAY_WEBHOOK_URL and "
                "HEADWAY_WEBHOOK_SECRET_FILE for every scheduler"
            )
        error = await self.delivery.test(request.actor or "unknown")
        if error is not None:
            raise Conflict(f"the webhook did not accept the test notification: {error}")
        return Changed(text="the webhook accepted the test notification")

    async def read_settings(self, _: operations.SettingsQuestion) -> operations.SettingsAnswer:
        """Return the settings in force in this process."""
        found = settings_in_effect(self.settings, os.environ)
        settings = msgspec.convert(found, list[operations.SettingStatus], from_attributes=True)
        return operations.SettingsAnswer(process=self.name, settings=settings)

    async def cancel(self, request: work_queue.CancelOutstandingRequest) -> work_queue.CancelAnswer:
        """Cancel outstanding work.

        For each key the outstanding work is found once, and the dispatcher's answer is stored too.
        """
        known = await self._lookup(request, work_queue.CancelAnswer)
        if known is not None:
            return known
        outstanding = begun = await self._lookup(request, cancel.Outstanding)
        if outstanding is None:
            outstanding = await self._run(cancel.cancel, cancel.Outstanding, request)
        # Before the messages, which name each piece of work: a dead letter that waits for the slot
        # of the first one would start before its own message arrives.
        try:
            # The whole manifest or group only once: it may have other work by now.
            answer = await cancel.ask_dispatcher(
                self.broker, request, outstanding, whole=begun is None
            )
        finally:
            self._wake()
        return await self._store(request, answer)

    async def _lookup(self, request: Keyed, answer: type[Stored]) -> Stored | None:
        """Return the stored answer to a request with a key."""
        if request.key is None:
            return None
        async with self.database.transaction() as connection:
            return await IDEMPOTENCY.lookup(connection, request, answer)

    async def _store(self, request: Keyed, answer: Stored) -> Stored:
        """Store the answer to a request that takes more than one transaction."""
        if request.key is not None:
            async with writing(self.database) as (connection, now):
                await IDEMPOTENCY.store(connection, request, answer, now=now)
        return answer

    async def _carry_out(self, act: Act, answer: type[Struct] | None, request: Any) -> Any:
        """Carry out a request in one transaction, and wake the passes that continue it."""
        result = await self._run(act, answer, request)
        self._wake()
        if isinstance(request, manifests.PauseRequest):
            self.windows.call()
        return result

    async def _run(self, act: Act, answer: type[Struct] | None, request: Any) -> Any:
        """Act in a transaction; with an `answer` type only once for each key, except dry runs."""
        async with writing(self.database) as (connection, now):

            async def run() -> Any:
                result = await act(connection, request, now=now)
                return Changed(text=result) if isinstance(result, str) else result

            if answer is None or getattr(request, "dry_run", False):
                return await run()
            return await IDEMPOTENCY.run_once(connection, request, answer, run, now=now)

    def _wake(self) -> None:
        for wakeup in self.wakeups:
            wakeup.call()
