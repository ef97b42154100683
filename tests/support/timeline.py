"""The scheduler alone, on a real database, with a clock that the test sets."""

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID, uuid4

from headway import App, every
from headway.define.cadences import When
from headway.define.definitions import Definitions
from headway_contract import decode, event
from headway_contract.definitions import ApplyAnswer
from headway_contract.envelope import EventData
from headway_contract.lifecycle import Activation
from headway_contract.manifests import ChangeRequest, TriggerAnswer, TriggerRequest
from headway_contract.operations import ChangeGroupRequest
from headway_contract.settled import (
    ActivationRequested,
    DeadLetterAcknowledged,
    DeadLetterRetried,
    PruneConfirmed,
    WorkSettled,
)
from headway_postgres_kit import DATABASE_CLOCK, Clock, Database
from headway_relay import Handover
from headway_scheduler.declare.startup import apply
from headway_scheduler.fire.tick import Tick, TickResult
from headway_scheduler.operate import changes, triggers
from headway_scheduler.outcomes.settle import take_in

from support.queries import Queries

START = datetime(2027, 3, 1, 12, tzinfo=UTC)


class SetClock(Clock):
    """Shows the time that it was set to."""

    def __init__(self, at: datetime) -> None:
        self.at = at

    async def now(self, connection: Any) -> datetime:
        return self.at


def minutely(when: When | None = None, **options: Any) -> App:
    """An app with the manifest `a` in the group `ops`, every minute or `when` it is given."""
    app = App("test")
    app.job("job", group="ops")(lambda ctx: None)
    app.schedule("a", job="job", when=when or every(minutes=1), **options)
    return app


class Timeline(Queries):
    """Declares, ticks and settles at times of the test's choosing."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.clock = self.database.clock = SetClock(START)

    @contextmanager
    def real_time(self) -> Iterator[None]:
        """Let the time of PostgreSQL be schedule time for a while."""
        self.database.clock = DATABASE_CLOCK
        try:
            yield
        finally:
            self.database.clock = self.clock

    def at(self, **later: float) -> datetime:
        """Set the clock to so much after the start."""
        self.clock.at = START + timedelta(**later)
        return self.clock.at

    async def declare(self, app: App | Definitions, *, prune: Any = "delete") -> ApplyAnswer:
        definitions = app if isinstance(app, Definitions) else app.definitions()
        return await apply(self.database, definitions, policy=prune)

    async def tick(self, *, max_entries: int | None = 200, **later: float) -> TickResult:
        """Run the tick once, at so much after the start if that is given."""
        if later:
            self.at(**later)
        tick = Tick(self.database, holder="test", max_entries=max_entries, relay=Handover())
        return await tick.run_once()

    async def do(self, act: Any, request: Any) -> Any:
        """Act as an operator in a transaction, then run the tick."""
        async with self.database.transaction() as connection:
            answer = await act(connection, request, now=self.clock.at)
        await self.tick()
        return answer

    async def trigger(
        self, manifest: str = "a", *, begun: Collection[UUID] = (), **fields: Any
    ) -> TriggerAnswer:
        """Trigger a manifest as an operator, while workers have begun some work."""
        act = partial(triggers.trigger, begun=begun)
        return await self.do(act, TriggerRequest(manifest=manifest, **fields))

    async def change(self, manifest: str = "a", **fields: Any) -> str:
        """Change a manifest's settings as an operator."""
        return await self.do(changes.change, ChangeRequest(manifest=manifest, **fields))

    async def change_group(self, group: str = "ops", **fields: Any) -> str:
        """Change a group's settings as an operator."""
        return await self.do(changes.change_group, ChangeGroupRequest(group=group, **fields))

    async def settle(
        self,
        manifest: str,
        outcome: str = "completed",
        *,
        at: datetime | None = None,
        dead_letter: UUID | None = None,
        activations: list[Activation] | None = None,
    ) -> UUID:
        """Tell that the oldest work under way of a manifest has ended."""
        work = (await self.under_way(manifest))[0]
        await self.tell(
            WorkSettled(
                work=work["id"],
                round=work["round"],
                manifest_id=work["manifest_id"],
                manifest=manifest,
                group="any",
                outcome=outcome,
                runs=1,
                attempts=1,
                dead_letter=dead_letter,
                activations=activations or [],
                settled_at=at or self.clock.at,
            )
        )
        return work["id"]

    async def dead_letter(self, manifest: str) -> tuple[UUID, UUID]:
        """Tell that work of a manifest needs a person; returns the work and the letter."""
        letter = uuid4()
        return await self.settle(manifest, "dead_lettered", dead_letter=letter), letter

    async def resolve(self, manifest: str, work: UUID, letter: UUID, *, retried: bool) -> None:
        """Deliver the event that a dead letter was resolved."""
        fields = {
            "dead_letter": letter,
            "work": work,
            "round": 2 if retried else 1,
            "manifest_id": await self.id_of(manifest),
            "group": "any",
            "resolved_at": self.clock.at,
        }
        kind = DeadLetterRetried if retried else DeadLetterAcknowledged
        await self.tell(kind(**fields))

    async def activate(self, parent: str, work: UUID, *activations: Activation) -> None:
        """Tell that a run of the parent woke dormant dependents."""
        await self.tell(
            ActivationRequested(
                work=work,
                round=1,
                run=uuid4(),
                manifest_id=await self.id_of(parent),
                group="any",
                activations=list(activations),
            )
        )

    async def confirm_prunes(self) -> None:
        """Tell that the dispatcher has let go of everything that is being pruned."""
        rows = await self.rows("SELECT * FROM scheduler.manifest WHERE pruning_at IS NOT NULL")
        for row in rows:
            await self.tell(
                PruneConfirmed(
                    manifest_id=row["id"],
                    manifest=row["external_id"],
                    group="any",
                    confirmed_at=self.clock.at,
                )
            )

    async def tell(self, *outcomes: EventData) -> None:
        """Take in events of the dispatcher, all in one batch."""
        events = [
            event(data, id=uuid4(), source="test", subject="x", time=self.clock.at)
            for data in outcomes
        ]
        async with self.database.transaction() as connection:
            await take_in(connection, events, now=self.clock.at)
        # As in a running scheduler, where the intake wakes the tick.
        await self.tick()

    async def under_way(self, manifest: str) -> list[Any]:
        rows = await self.rows(
            "SELECT work.* FROM scheduler.work JOIN scheduler.manifest ON manifest.id = manifest_id"
            " WHERE external_id = $1 ORDER BY queued_at, slot",
            manifest,
        )
        return [{**row, "cause": short(row["cause"])} for row in rows]

    async def ledger(self, manifest: str) -> list[tuple[str, str, str | None]]:
        """The decisions about a manifest, as (times in minutes from the start, decision, reason)."""
        rows = await self.rows(
            "SELECT occurrence.* FROM scheduler.occurrence"
            " JOIN scheduler.manifest ON manifest.id = manifest_id"
            " WHERE external_id = $1 ORDER BY first_due_at, last_due_at, cause",
            manifest,
        )
        return [(_named(row), row["decision"], row["reason"]) for row in rows]

    async def outbox(self, kind: type[EventData]) -> list[Any]:
        """The events of a kind that wait to be published, the oldest first."""
        rows = await self.rows("SELECT body FROM scheduler.outbox ORDER BY id")
        events = [event.data for row in rows for event in decode(row["body"])]
        return [data for data in events if isinstance(data, kind)]

    async def manifest(self, external_id: str) -> Any:
        rows = await self.rows(
            "SELECT * FROM scheduler.manifest WHERE external_id = $1 AND pruning_at IS NULL",
            external_id,
        )
        return rows[0] if rows else None

    async def id_of(self, external_id: str) -> UUID:
        return (await self.manifest(external_id))["id"]


def short(cause: str) -> str:
    """A cause without the id of the parent, which no test knows beforehand."""
    return re.sub(r"^(success(?:es)?(?:\+\d+)?):[0-9a-f-]{36}:", r"\1:", cause)


def _named(row: Any) -> str:
    """A due time by its minute, a stretch by its first and last, anything else by its cause."""
    if not row["cause"].startswith(("due:", "stretch:")):
        return short(row["cause"])
    first, last = (
        (row[name] - START) / timedelta(minutes=1) for name in ("first_due_at", "last_due_at")
    )
    return f"{first:g}" if first == last else f"{first:g}-{last:g}"
