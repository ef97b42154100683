"""Random histories: every due time is decided once, and no manifest sleeps for ever."""

import os
import random
from datetime import datetime, timedelta
from uuid import UUID, uuid4

import msgspec
import pytest
from headway import App, allow, catch_up, every, exclude_times, skip_missed
from headway_contract.lifecycle import Activation
from headway_contract.manifests import ChangeRequest, LedgerQuestion, TriggerRequest
from headway_contract.settled import DeadLetterAcknowledged, DeadLetterRetried, WorkSettled
from headway_decisions.timing import timing
from headway_decisions.timing.timing import Timing
from headway_errors import Rejected
from headway_scheduler.explain.ledger_check import check_page
from headway_scheduler.operate import changes, triggers
from support.timeline import START, Timeline

pytestmark = pytest.mark.long

SEEDS = range(int(os.environ.get("HEADWAY_HISTORIES", "10")))
SCHEDULED = ("m0", "m1", "m2")
NAMES = (*SCHEDULED, "dependent", "dormant")
STEPS = 60


class History:
    """A random history of three manifests and two dependents of the first."""

    def __init__(self, timeline: Timeline, seed: int) -> None:
        self.timeline = timeline
        self.chance = random.Random(seed)
        self.shapes = {name: self.shape() for name in SCHEDULED}
        self.letters: dict[UUID, dict] = {}

    def shape(self) -> dict:
        pick = self.chance.choice
        excluded = pick([None, None, "12:10-12:25", "13:00-14:00"])
        return {
            "when": every(
                minutes=pick([1, 5, 7, 15]), tz=pick(["UTC", "Europe/Berlin", "Asia/Kolkata"])
            ),
            "exclude": [exclude_times(excluded)] if excluded else [],
            "overlap": pick(["skip", "queue_one", allow(2), allow(3), "cancel_running"]),
            "misfire": pick(["fire_once", skip_missed(), catch_up(3), catch_up(50)]),
            "jitter": pick([0, 0, 30, 400]),
            "group": pick(["one", "other"]),
            "timeout": pick([10, 20]),
        }

    async def declare(self) -> None:
        app = App("app")
        app.job("job")(lambda ctx: None)
        for name, shape in self.shapes.items():
            app.schedule(name, job="job", **shape)
        overlap = self.shapes["m0"]["overlap"]
        app.manifest("m0").include("dependent", job="job", overlap=overlap, group="third")
        app.manifest("m0").include(
            "dormant", job="job", overlap=overlap, group="third", dormant=True
        )
        await self.timeline.declare(app)
        await self.timeline.confirm_prunes()

    async def step(self) -> None:
        later = self.chance.choice([0, 1, 20, 60, 61, 200, 900, 3000])
        self.timeline.clock.at += timedelta(seconds=later)
        often = [self.timeline.tick] * 4 + [self.settle] * 6 + [self.resolve] * 2
        seldom = [self.switch, self.switch_group, self.trigger, self.redeclare, self.activate]
        await self.chance.choice([*often, *seldom])()

    async def settle(self) -> None:
        ends = []
        for name in NAMES:
            for work in await self.timeline.under_way(name):
                if self.chance.random() < 0.5:
                    continue
                kinds = ["completed"] * 4 + ["cancelled", "dead_lettered", "coalesced"]
                ends.append(self.end(work, self.chance.choice(kinds)))
        if ends:
            await self.timeline.tell(*ends)

    def end(self, work: dict, outcome: str) -> WorkSettled:
        letter = uuid4() if outcome == "dead_lettered" else None
        if letter is not None:
            self.letters[letter] = work
        late = timedelta(seconds=self.chance.choice([0, 0, 30, 700]))
        return WorkSettled(
            work=work["id"],
            round=work["round"],
            manifest_id=work["manifest_id"],
            group="any",
            outcome=outcome,
            runs=1,
            attempts=1,
            dead_letter=letter,
            settled_at=max(work["queued_at"], self.timeline.clock.at - late),
        )

    async def resolve(self) -> None:
        if not self.letters:
            return
        letter = self.chance.choice(list(self.letters))
        await self.resolve_letter(letter, retried=self.chance.random() < 0.5)

    async def resolve_letter(self, letter: UUID, *, retried: bool) -> None:
        work = self.letters.pop(letter)
        fields = {
            "dead_letter": letter,
            "work": work["id"],
            "round": work["round"] + retried,
            "manifest_id": work["manifest_id"],
            "group": "any",
            "resolved_at": self.timeline.clock.at,
        }
        event = (
            DeadLetterRetried(slot=work["slot"], **fields)
            if retried
            else DeadLetterAcknowledged(**fields)
        )
        await self.timeline.tell(event)

    async def switch(self) -> None:
        manifest = self.chance.choice(NAMES)
        request = ChangeRequest(
            manifest=manifest,
            enabled=self.chance.random() < 0.5,
            # A manifest without fire times of its own takes no jitter.
            jitter_seconds=self.chance.choice([0, 60, 600])
            if manifest in SCHEDULED
            else msgspec.UNSET,
        )
        await self.timeline.do(changes.change, request)

    async def switch_group(self) -> None:
        groups = await self.timeline.rows("SELECT name FROM scheduler.manifest_group ORDER BY 1")
        group = self.chance.choice([row["name"] for row in groups])
        await self.timeline.change_group(group, enabled=self.chance.random() < 0.5)

    async def trigger(self) -> None:
        delay = self.chance.choice([0, 0, 300])
        request = TriggerRequest(manifest=self.chance.choice(NAMES), delay_seconds=delay)
        try:
            await self.timeline.do(triggers.trigger, request)
        except Rejected as refused:
            if "dead letter" not in str(refused):
                raise

    async def redeclare(self) -> None:
        self.shapes[self.chance.choice(SCHEDULED)] = self.shape()
        await self.declare()

    async def activate(self) -> None:
        for work in (await self.timeline.under_way("m0"))[:1]:
            wanted = Activation(manifest="dormant", key=str(self.chance.random()))
            await self.timeline.activate("m0", work["id"], wanted)

    async def release_everything(self) -> None:
        """Remove every hold, then run until no pending work is left."""
        for letter in list(self.letters):
            await self.resolve_letter(letter, retried=False)
        for name in NAMES:
            await self.timeline.change(name, enabled=True)
        for row in await self.timeline.rows("SELECT name FROM scheduler.manifest_group"):
            await self.timeline.change_group(row["name"], enabled=True)
        for _ in range(1000):
            self.timeline.clock.at += timedelta(seconds=1)
            await self.timeline.tick()
            works = [work for name in NAMES for work in await self.timeline.under_way(name)]
            if works:
                await self.timeline.tell(*(self.end(work, "completed") for work in works))
            elif not await self.owed():
                return
        raise AssertionError(f"still owed: {await self.owed()}")

    async def owed(self) -> list:
        return await self.timeline.rows(
            "SELECT cause, reason FROM scheduler.occurrence WHERE decision = 'owed'"
        )

    async def undecided(self, name: str) -> list[tuple[datetime, int]]:
        """Return the due times that are not decided exactly once, with their number of decisions."""
        row = await self.timeline.manifest(name)
        decided = await self.timeline.rows(
            "SELECT * FROM scheduler.occurrence WHERE manifest_id = $1"
            " AND (starts_with(cause, 'due:') OR starts_with(cause, 'stretch:'))",
            row["id"],
        )
        versions = await self.timeline.rows(
            "SELECT * FROM scheduler.timing WHERE manifest_id = $1 ORDER BY since", row["id"]
        )
        ends = [*(version["since"] for version in versions[1:]), self.timeline.clock.at]
        wrong = []
        for version, end in zip(versions, ends, strict=True):
            kept = msgspec.convert(version["timing"], Timing)
            at = timing.next_due(kept, version["since"])
            while at is not None and at <= end:
                times = sum(row["first_due_at"] <= at <= row["last_due_at"] for row in decided)
                if times != (0 if at >= row["next_due_at"] else 1):
                    wrong.append((at, times))
                at = timing.next_due(kept, at)
        return wrong


@pytest.mark.parametrize("seed", SEEDS)
async def test_every_due_time_is_decided_once_and_no_manifest_sleeps_for_ever(database, seed):
    history = History(Timeline(database), seed)
    await history.declare()
    for _ in range(STEPS):
        await history.step()
    await history.release_everything()
    assert history.timeline.clock.at > START
    for name in SCHEDULED:
        assert await history.undecided(name) == [], name
        assert (await history.timeline.manifest(name))["wake_at"] is not None, f"{name} sleeps"
    parent, dependent = [await history.timeline.manifest(name) for name in ("m0", "dependent")]
    assert dependent["seen_success"] == parent["success_number"]
    answer = await check_page(database, LedgerQuestion(), kept=timedelta(days=30))
    assert answer.gaps == []
