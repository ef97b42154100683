"""The desk: answers questions about manifests, and takes requests to change them."""

import os
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from headway.define.definitions import Definitions, InvalidDefinitions
from headway.define.packing import UnreadableDefinitions, problems_of, unpack
from headway_contract import subjects
from headway_contract.definitions import (
    ApplyAnswer,
    ApplyRequest,
    GiveBackAppRequest,
    RenameAppRequest,
    RetireAppRequest,
)
from headway_contract.fields import Changed
from headway_contract.manifests import (
    ActivationAnswer,
    ActivationQuestion,
    BackfillAnswer,
    BackfillRequest,
    ChangeManyRequest,
    ChangeRequest,
    DeleteRequest,
    ManifestResult,
    ManyChanged,
    PauseAnswer,
    PauseRequest,
    ResumeAnswer,
    ResumeRequest,
    Selection,
    TriggerAnswer,
    TriggerRequest,
)
from headway_contract.operations import (
    ChangeGroupRequest,
    ChangeJobRequest,
    NotifyTestRequest,
    SettingsAnswer,
    SettingsQuestion,
    SettingStatus,
)
from headway_contract.work_queue import (
    CancelAnswer,
    CancelOutstandingRequest,
    DismissRequest,
    EnqueueAnswer,
    EnqueueRequest,
)
from headway_errors import Conflict, Invalid, RequestFailed
from headway_jetstream_kit import Broker
from headway_jetstream_kit.endpoints import serve
from headway_postgres_kit import Clock, Connection, Database
from headway_service_kit.idempotency import Keyed
from headway_service_kit.passes import Wakeup
from headway_service_kit.settings_text import settings_in_effect
from msgspec import Struct

from headway_scheduler.declare.checks import ForeignDefinitions
from headway_scheduler.declare.startup import apply
from headway_scheduler.notifications.delivery import Delivery
from headway_scheduler.operate import (
    applications,
    backfill,
    cancel,
    changes,
    enqueue_requests,
    pause,
    triggers,
)
from headway_scheduler.operate.selection import choose
from headway_scheduler.outcomes import activate
from headway_scheduler.questions import Questions
from headway_scheduler.requests import typed
from headway_scheduler.settings import SchedulerSettings
from headway_scheduler.store import IDEMPOTENCY

_MOST_LISTED = 1000
# How many manifests one request changes: it answers within the time that a client waits.
_MOST_CHANGED = 500

Answer = TypeVar("Answer")
Kept = TypeVar("Kept", bound=Struct)


class Followers(Struct, frozen=True, kw_only=True):
    """The passes that go on with what was asked for."""

    relay: Wakeup
    tick: Wakeup
    enqueue: Wakeup
    windows: Wakeup


class Desk:
    """Answers for one scheduler process; all schedulers share the requests."""

    def __init__(
        self,
        database: Database,
        broker: Broker,
        settings: SchedulerSettings,
        *,
        name: str,
        clock: Clock,
        wake: Followers,
        delivery: Delivery | None = None,
    ) -> None:
        self._database = database
        self._broker = broker
        self._name = name
        self._settings = settings
        self._clock = clock
        self._wake_up = wake
        self._delivery = delivery
        self._questions = Questions(database, settings, clock=clock)

    async def listen(self) -> None:
        """Share the requests with all other schedulers."""
        asked = self._questions
        await serve(
            self._broker,
            service="headway-scheduler",
            queue=subjects.SCHEDULERS,
            endpoints={
                **asked.endpoints(),
                subjects.ACTIVATION_QUESTION: typed(ActivationQuestion, self.may_activate),
                subjects.APPLY_REQUEST: typed(ApplyRequest, self.apply),
                subjects.CHANGE_REQUEST: typed(ChangeRequest, self.change),
                subjects.CHANGE_MANY_REQUEST: typed(ChangeManyRequest, self.change_many),
                subjects.NOTIFY_TEST_REQUEST: typed(NotifyTestRequest, self.test_notification),
                subjects.SCHEDULER_SETTINGS_QUESTION: typed(SettingsQuestion, self.settings),
                subjects.CHANGE_GROUP_REQUEST: typed(ChangeGroupRequest, self.change_group),
                subjects.PAUSE_REQUEST: typed(PauseRequest, self.pause),
                subjects.RESUME_REQUEST: typed(ResumeRequest, self.resume),
                subjects.CHANGE_JOB_REQUEST: typed(ChangeJobRequest, self.change_job),
                subjects.TRIGGER_REQUEST: typed(TriggerRequest, self.trigger),
                subjects.BACKFILL_REQUEST: typed(BackfillRequest, self.backfill),
                subjects.DELETE_REQUEST: typed(DeleteRequest, self.delete),
                subjects.RENAME_APP_REQUEST: typed(RenameAppRequest, self.rename_app),
                subjects.RETIRE_APP_REQUEST: typed(RetireAppRequest, self.retire_app),
                subjects.GIVE_BACK_APP_REQUEST: typed(GiveBackAppRequest, self.give_back_app),
                subjects.ENQUEUE_REQUEST: typed(EnqueueRequest, self.enqueue),
                subjects.DISMISS_REQUEST: typed(DismissRequest, self.dismiss),
                subjects.CANCEL_OUTSTANDING_REQUEST: typed(CancelOutstandingRequest, self.cancel),
            },
        )

    async def may_activate(self, question: ActivationQuestion) -> ActivationAnswer:
        """Whether the runs of a manifest may wake these dependents."""
        async with self._database.acquire() as connection:
            found = await activate.problems(connection, question.manifest, question.activations)
        return ActivationAnswer(problems=found)

    async def apply(self, request: ApplyRequest) -> ApplyAnswer:
        """Store definitions and prune what they no longer name.

        That takes several transactions, and sending the same again changes nothing by its nature:
        a key only makes the answer the same.
        """
        known = await self._recall(request, ApplyAnswer)
        return known or await self._remember(request, await self._apply(request))

    async def _apply(self, request: ApplyRequest) -> ApplyAnswer:
        definitions = read_definitions(request.definitions)
        problems = problems_of(definitions)
        if problems:
            raise Invalid("\n".join(problems))
        try:
            applied = await apply(
                self._database,
                definitions,
                policy=request.prune or self._settings.prune,
                clock=self._clock,
                source=f"operator/{request.actor or 'unknown'}",
                declares="files",
                take_over=request.take_over,
                may_fire=self._settings.tick == "on",
            )
        except ForeignDefinitions as error:
            raise Conflict(str(error)) from error
        except InvalidDefinitions as error:
            raise Invalid(str(error)) from error
        self._wake()
        warnings = list(applied.warnings)
        return ApplyAnswer(
            owner=definitions.owner,
            created=_listed("created", applied.declared.created, warnings),
            changed=_listed("changed", applied.declared.changed, warnings),
            unchanged=applied.declared.unchanged,
            pruned=_listed("pruned", applied.pruned, warnings),
            disabled=_listed("disabled", applied.disabled, warnings),
            warnings=warnings,
            stale=applied.declared.stale,
        )

    async def change(self, request: ChangeRequest) -> Changed:
        """Change what operators own of a manifest."""
        return Changed(text=await self._do(changes.change, request))

    async def change_many(self, request: ChangeManyRequest) -> ManyChanged:
        """Enable, disable or run a page of manifests, each in a transaction of its own.

        Enabling again changes nothing, and a trigger has its key: keeping the answer afterwards
        is enough.
        """
        known = None if request.dry_run else await self._recall(request, ManyChanged)
        if known is not None:
            return known
        names = await self._names_of(request)
        page = names[:_MOST_CHANGED]
        last, more = page[-1] if page else "", len(names) > len(page)
        if request.dry_run:
            results = [ManifestResult(manifest=name, done=False) for name in page]
            return ManyChanged(results=results, last=last, more=more)
        results = await self._change_each(page, request)
        return await self._remember(request, ManyChanged(results=results, last=last, more=more))

    async def _names_of(self, request: ChangeManyRequest) -> list[str]:
        """The manifests of a request from its page on; a name that nobody bears refuses itself."""
        if request.manifests and request.group is None and not (request.labels or request.all):
            return list(dict.fromkeys(request.manifests))
        rows = await self._record(_choose, request)
        return [row["external_id"] for row in rows if row["external_id"] > request.after]

    async def _change_each(
        self, names: list[str], request: ChangeManyRequest
    ) -> list[ManifestResult]:
        results = []
        for manifest in names:
            try:
                text = await self._change_one(manifest, request)
            except RequestFailed as error:
                results.append(ManifestResult(manifest=manifest, done=False, text=str(error)))
            else:
                results.append(ManifestResult(manifest=manifest, done=True, text=text))
        return results

    async def _change_one(self, manifest: str, request: ChangeManyRequest) -> str:
        if request.action != "run":
            change = ChangeRequest(
                manifest=manifest, enabled=request.action == "enable", actor=request.actor
            )
            return (await self.change(change)).text
        trigger = TriggerRequest(manifest=manifest, key=request.key, actor=request.actor)
        return (await self.trigger(trigger)).text

    async def test_notification(self, request: NotifyTestRequest) -> Changed:
        """Send a test notification to the webhook once."""
        if self._delivery is None:
            raise Conflict(
                "no webhook is configured, so nobody is notified: set HEADWAY_WEBHOOK_URL and "
                "HEADWAY_WEBHOOK_SECRET_FILE for every scheduler"
            )
        error = await self._delivery.test(request.actor or "unknown")
        if error is not None:
            raise Conflict(f"the webhook did not take the test notification: {error}")
        return Changed(text="the webhook took the test notification")

    async def settings(self, _: SettingsQuestion) -> SettingsAnswer:
        """What holds in this process."""
        told = [
            msgspec.convert(one, SettingStatus, from_attributes=True)
            for one in settings_in_effect(self._settings, os.environ)
        ]
        return SettingsAnswer(process=self._name, settings=told)

    async def change_group(self, request: ChangeGroupRequest) -> Changed:
        """Change the settings of a group."""
        return Changed(text=await self._do(changes.change_group, request))

    async def pause(self, request: PauseRequest) -> PauseAnswer:
        """Let nothing of some manifests begin for a while."""
        answer = await self._do(_once(pause.pause, PauseAnswer), request)
        self._wake_up.windows.call()
        return answer

    async def resume(self, request: ResumeRequest) -> ResumeAnswer:
        """End the pause of some manifests."""
        return await self._do(_once(pause.resume, ResumeAnswer), request)

    async def change_job(self, request: ChangeJobRequest) -> Changed:
        """Change the limits of a job."""
        return Changed(text=await self._do(changes.change_job, request))

    async def delete(self, request: DeleteRequest) -> Changed:
        """Delete a manifest."""
        return await self._do(_once(_delete, Changed), request)

    async def rename_app(self, request: RenameAppRequest) -> Changed:
        """Give all that an application owns to another name."""
        return await self._do(_once(applications.rename, Changed), request)

    async def retire_app(self, request: RetireAppRequest) -> Changed:
        """Prune all that an application owns, and retire its jobs."""
        return await self._do(_once(applications.retire, Changed), request)

    async def give_back_app(self, request: GiveBackAppRequest) -> Changed:
        """Let the code of an application declare it again."""
        return await self._do(_once(applications.give_back, Changed), request)

    async def trigger(self, request: TriggerRequest) -> TriggerAnswer:
        """Run a manifest now."""
        return await self._do(triggers.trigger, request)

    async def backfill(self, request: BackfillRequest) -> BackfillAnswer:
        """Queue the occurrences of a past range."""
        return await self._do(backfill.backfill, request)

    async def enqueue(self, request: EnqueueRequest) -> EnqueueAnswer:
        """Queue work of a job, without a manifest."""
        return await self._do(enqueue_requests.enqueue, request)

    async def dismiss(self, request: DismissRequest) -> Changed:
        """Forget work that was enqueued and refused."""
        return Changed(text=await self._do(enqueue_requests.dismiss, request))

    async def cancel(self, request: CancelOutstandingRequest) -> CancelAnswer:
        """End outstanding work early.

        What is outstanding is decided once for a key; what the dispatcher says of it is kept, too.
        """
        known = await self._recall(request, CancelAnswer)
        if known is not None:
            return known
        outstanding = begun = await self._recall(request, cancel.Outstanding)
        if outstanding is None:
            outstanding = await self._record(_once(cancel.cancel, cancel.Outstanding), request)
        # Before the messages, which name the works one by one: a dead letter that waits for the
        # slot of the first to end would begin before it is its turn to be cancelled.
        try:
            # Not the whole a second time: other work may have come meanwhile.
            answer = await cancel.ask_dispatcher(
                self._broker, request, outstanding, whole=begun is None
            )
        finally:
            self._wake()
        return await self._remember(request, answer)

    async def _recall(self, request: Keyed, answer: type[Kept]) -> Kept | None:
        """What was answered to a request with a key before."""
        if request.key is None:
            return None
        async with self._database.transaction() as connection:
            return await IDEMPOTENCY.lookup(connection, request, answer)

    async def _remember(self, request: Keyed, answer: Kept) -> Kept:
        """Keep the answer to a request that is more than one transaction."""
        if request.key is not None:
            async with self._database.transaction() as connection:
                now = await self._now(connection)
                await IDEMPOTENCY.store(connection, request, answer, now=now)
        return answer

    async def _do(self, act: Callable[..., Awaitable[Answer]], request: Any) -> Answer:
        """Carry out a request in one transaction, or say why not; and let it be told."""
        answer = await self._record(act, request)
        self._wake()
        return answer

    async def _record(self, act: Callable[..., Awaitable[Answer]], request: Any) -> Answer:
        async with self._database.transaction() as connection:
            return await act(connection, request, now=await self._now(connection))

    async def _now(self, connection: Connection) -> datetime:
        return await self._clock.now(connection)

    def _wake(self) -> None:
        self._wake_up.relay.call()
        self._wake_up.tick.call()
        self._wake_up.enqueue.call()


def _once(
    act: Callable[..., Awaitable[Kept]], answer: type[Kept]
) -> Callable[..., Awaitable[Kept]]:
    """The same, but done once for a key. A dry run does nothing, so it needs none."""

    async def acted(connection: Connection, request: Any, *, now: datetime) -> Kept:
        if getattr(request, "dry_run", False):
            return await act(connection, request, now=now)
        return await IDEMPOTENCY.run_once(
            connection, request, answer, lambda: act(connection, request, now=now), now=now
        )

    return acted


async def _choose(connection: Connection, chosen: Selection, *, now: datetime) -> list[Any]:  # noqa: ARG001
    return await choose(connection, chosen)


async def _delete(connection: Connection, request: DeleteRequest, *, now: datetime) -> Changed:
    return Changed(text=await changes.delete(connection, request, now=now))


def read_definitions(packed: bytes) -> Definitions:
    """Unpack definitions that came over the wire."""
    try:
        return unpack(packed)
    except UnreadableDefinitions as error:
        raise Invalid(str(error)) from error


def _listed(what: str, ids: list[str], warnings: list[str]) -> list[str]:
    """As many ids as an answer has room for; that there are more is a warning."""
    if len(ids) > _MOST_LISTED:
        warnings.append(f"{len(ids)} manifests were {what}, of which {_MOST_LISTED} are listed")
    return ids[:_MOST_LISTED]
