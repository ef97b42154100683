"""Random pauses against a model: a manifest is held exactly while a pause in force covers it, no
schedule fires meanwhile, and each due time has one decision with the reasons of its pauses.
"""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from uuid import UUID

import pytest
from headway import App, allow, catch_up, every, skip_missed
from headway_contract.manifests import LedgerQuestion, PauseRequest, ResumeRequest
from headway_errors import Conflict
from headway_relay import Handover
from headway_scheduler.explain.ledger_check import MISAPPLIED, check_page
from headway_scheduler.operate import pause
from headway_scheduler.operate.pause import Windows
from headway_scheduler.store import DECLARE_LOCK, manifests, writing
from headway_service_kit.passes import Wakeup
from support.timeline import START, Timeline
from support.world import until

MISFIRES = {"a": "fire_once", "b": skip_missed(), "c": catch_up(3)}
MINUTE = timedelta(minutes=1)


@dataclass
class Pause:
    """A pause of the model, and since when it has held each manifest."""

    request: PauseRequest
    ends_at: datetime | None
    holds: dict[str, datetime] = field(default_factory=dict)

    def covers(self, name: str, group: str, label: str) -> bool:
        chosen = self.request
        if chosen.manifests:
            return name in chosen.manifests
        return chosen.group in (None, group) and chosen.labels.get("team", label) == label


@dataclass
class Model:
    """The pauses in force and the past windows of manifests, as simply as possible."""

    pauses: dict[UUID, Pause] = field(default_factory=dict)
    manifests: dict[str, tuple[str, str]] = field(default_factory=dict)
    windows: list[tuple[str, datetime, datetime, str]] = field(default_factory=list)

    def update(self, now: datetime) -> None:
        """Let each pause in force hold exactly the manifests that it covers."""
        for identity, known in list(self.pauses.items()):
            over = known.ends_at is not None and known.ends_at <= now
            self.hold(known, now, end=over)
            if over:
                del self.pauses[identity]

    def hold(self, known: Pause, now: datetime, *, end: bool) -> None:
        ended_at = min(now, known.ends_at or now)
        for name in list(known.holds):
            if end or not known.covers(name, *self.manifests[name]):
                since = known.holds.pop(name)
                self.windows.append((name, since, ended_at, known.request.reason))
        if not end:
            for name, place in self.manifests.items():
                if known.covers(name, *place):
                    known.holds.setdefault(name, now)

    def end(self, identity: UUID, now: datetime) -> None:
        self.hold(self.pauses.pop(identity), now, end=True)

    def held(self) -> dict[str, set[UUID]]:
        return {
            name: {identity for identity, known in self.pauses.items() if name in known.holds}
            for name in self.manifests
        }

    def reasons(self, name: str, first: datetime, last: datetime) -> set[str]:
        """Return the reasons of the pauses that held a manifest in a time."""
        return {
            reason
            for held, since, until, reason in self.windows
            if held == name and since <= last and first <= until
        }


class Story:
    """Random changes to the scheduler and to the model, step by step."""

    def __init__(self, timeline: Timeline, chance: Random) -> None:
        self.timeline, self.chance, self.model = timeline, chance, Model()
        self.numbers = iter(range(1000))

    async def declare(self) -> None:
        names = [*MISFIRES][: self.chance.choice([2, 3, 3])]
        names = [name for name in MISFIRES if name in names or name in self.model.manifests]
        app = App("test")
        app.job("job", group="ops")(lambda ctx: None)
        for name in names:
            group, label = self.chance.choice(["ops", "mail"]), self.chance.choice(["x", "y"])
            app.schedule(
                name,
                job="job",
                when=every(minutes=2),
                misfire=MISFIRES[name],
                overlap=allow(50),
                group=group,
                labels={"team": label},
            )
            self.model.manifests[name] = (group, label)
        await self.timeline.declare(app)
        await self.timeline.tick()

    async def pause(self) -> None:
        now = self.timeline.clock.at
        name = self.chance.choice([*self.model.manifests])
        group, label = self.model.manifests[name]
        chosen = self.chance.choice(
            [{"manifests": [name]}, {"group": group}, {"labels": {"team": label}}, {"all": True}]
        )
        if self.chance.random() < 0.3:
            chosen = {"manifests": [*self.model.manifests]}
        minutes = self.chance.choice([None, 1, 3, 7, 20])
        until = None if minutes is None else now + minutes * MINUTE
        reason = f"number {next(self.numbers)}"
        request = PauseRequest(until=until, reason=reason, actor="me", **chosen)
        answer = await self.timeline.do(pause.pause, request)
        self.model.pauses[answer.pause] = Pause(request, until)

    async def resume_one(self) -> None:
        if self.model.pauses:
            identity = self.chance.choice([*self.model.pauses])
            await self.timeline.do(pause.resume, ResumeRequest(pauses=[identity], actor="me"))
            self.model.end(identity, self.timeline.clock.at)

    async def resume_all(self) -> None:
        """Resume by the selection all, which must spare pauses of other selections."""
        made = [identity for identity, known in self.model.pauses.items() if known.request.all]
        request = ResumeRequest(all=True, actor="me")
        if len(made) == 1 or not any(self.model.held().values()):
            await self.timeline.do(pause.resume, request)
            for identity in made:
                self.model.end(identity, self.timeline.clock.at)
        else:
            with pytest.raises(Conflict):
                await self.timeline.do(pause.resume, request)

    async def wait(self) -> None:
        """Let time pass, with a scheduler or without one."""
        minutes, is_up = self.chance.choice([1, 2, 5, 11]), self.chance.random() < 0.7
        for _ in range(minutes):
            self.timeline.clock.at += MINUTE
            if is_up:
                await self.run_passes()
        await self.run_passes()

    async def run_passes(self) -> None:
        windows = Windows(self.timeline.database, relay=Handover(), tick=Wakeup())
        if self.chance.random() < 0.5:
            await self.timeline.tick()
        while await windows.run_once() == 0.0:
            pass
        self.model.update(self.timeline.clock.at)
        await self.check()

    async def check(self) -> None:
        """Tick, and compare holds and fires with the model."""
        fired = (
            "SELECT count(*) FROM scheduler.occurrence JOIN scheduler.manifest ON id = manifest_id"
        )
        fired += " WHERE decision = 'queued' AND external_id = $1"
        expected = self.model.held()
        before = {name: await self.timeline.rows(fired, name) for name in expected}
        await self.timeline.tick()
        rows = await self.timeline.rows(
            "SELECT external_id, paused, pauses, wake_at FROM scheduler.manifest"
        )
        holding = {
            row["external_id"]: {UUID(w["pause"]) for w in row["pauses"] if "ended_at" not in w}
            for row in rows
        }
        assert holding == expected
        for row in rows:
            assert row["paused"] == bool(expected[row["external_id"]])
            if row["paused"]:
                assert row["wake_at"] is None
                name = row["external_id"]
                assert await self.timeline.rows(fired, name) == before[name]

    async def check_reasons(self) -> None:
        rows = await self.timeline.rows(
            "SELECT external_id, first_due_at, last_due_at, reason FROM scheduler.occurrence"
            " JOIN scheduler.manifest ON id = manifest_id WHERE decision = 'skipped'"
        )
        for name, first, last, reason in rows:
            kind, _, named = reason.partition(": ")
            assert set(named.split("; ")) - {""} == self.model.reasons(name, first, last), reason
            assert kind == ("paused" if named else "missed")


@pytest.mark.parametrize("seed", range(6))
async def test_a_manifest_is_held_exactly_while_a_pause_in_force_covers_it(database, seed):
    chance = Random(seed)
    timeline = Timeline(database)
    story = Story(timeline, chance)
    await story.declare()
    steps = [story.pause, story.pause, story.resume_one, story.resume_all, story.declare]
    for _ in range(40):
        await chance.choice([*steps, story.wait, story.wait])()
        story.model.update(timeline.clock.at)
        await story.check()
    while story.model.pauses:
        await story.resume_one()
    await story.wait()
    await story.check_reasons()
    found = await check_page(timeline.database, LedgerQuestion(), kept=timedelta(days=300))
    assert (found.gaps, found.manifests) == ([], len(story.model.manifests))
    assert found.fire_times > 0


async def test_concurrent_pauses_resumes_and_declarations_agree_in_the_end(database):
    timeline = Timeline(database)

    def app_of(*names: str) -> App:
        app = App("test")
        app.job("job", group="ops")(lambda ctx: None)
        for name in names:
            app.schedule(name, job="job", when=every(minutes=2))
        return app

    async def act(action, request):
        async with writing(timeline.database) as (connection, now):
            return await action(connection, request, now=now)

    async def paused() -> set[str]:
        rows = await timeline.rows("SELECT external_id FROM scheduler.manifest WHERE paused")
        return {row["external_id"] for row in rows}

    await timeline.declare(app_of("a", "b"))
    names = ["a", "b"]
    for number in range(8):
        mine = await act(pause.pause, PauseRequest(manifests=["a"], reason=f"{number}"))
        names.append(f"new-{number}")
        everything, ended, _ = await asyncio.gather(
            act(pause.pause, PauseRequest(all=True, reason=f"{number}")),
            act(pause.resume, ResumeRequest(pauses=[mine.pause])),
            timeline.declare(app_of(*names)),
        )
        assert ended.pauses == [mine.pause]
        assert await paused() == set(names)
        names.append(f"later-{number}")
        # Two people end the same pause: one of them is told that it has ended.
        results = await asyncio.gather(
            act(pause.resume, ResumeRequest(pauses=[everything.pause])),
            act(pause.resume, ResumeRequest(pauses=[everything.pause])),
            timeline.declare(app_of(*names)),
            return_exceptions=True,
        )
        assert [type(result).__name__ for result in results].count("Conflict") == 1
        assert await paused() == set()
    found = await check_page(timeline.database, LedgerQuestion(), kept=timedelta(days=1))
    assert found.gaps == []


async def test_verify_finds_a_pause_that_is_not_applied(database):
    timeline = Timeline(database)
    app = App("test")
    app.job("job", group="ops")(lambda ctx: None)
    app.schedule("a", job="job", when=every(minutes=2))
    await timeline.declare(app)
    await timeline.do(pause.pause, PauseRequest(all=True, until=START + MINUTE))

    async def troubles() -> list[str]:
        answer = await check_page(timeline.database, LedgerQuestion(), kept=timedelta(days=1))
        return [gap.trouble for gap in answer.gaps]

    assert await troubles() == []
    timeline.at(minutes=1)
    # Its time is over, and the pass that ends it runs soon.
    assert await troubles() == []
    timeline.at(seconds=30)
    await timeline.rows("DELETE FROM scheduler.pause")
    assert await troubles() == [MISAPPLIED]


async def test_changes_of_pauses_wait_for_a_declaration_under_way(database):
    """Otherwise a manifest that it adds would miss the pause, or never be let go."""
    timeline = Timeline(database)
    app = App("test")
    app.job("job", group="ops")(lambda ctx: None)
    app.schedule("a", job="job", when=every(minutes=2))
    await timeline.declare(app)
    later = timeline.clock.at + MINUTE
    request = PauseRequest(manifests=["a"], until=later)
    known = [(await timeline.do(pause.pause, request)).pause]
    known += [(await timeline.do(pause.pause, PauseRequest(all=True))).pause]
    timeline.clock.at = later

    async def act(action, request) -> None:
        async with writing(timeline.database) as (connection, now):
            await action(connection, request, now=now)

    async def waiting() -> bool:
        rows = await timeline.rows(
            "SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        return len(rows) == 1

    windows = Windows(timeline.database, relay=Handover(), tick=Wakeup())
    for change in (
        lambda: act(pause.pause, PauseRequest(group="ops")),
        lambda: act(pause.resume, ResumeRequest(pauses=known[1:])),
        windows.run_once,
    ):
        async with timeline.database.transaction() as connection:
            await connection.execute(manifests["lock_declaring"], DECLARE_LOCK)
            changing = asyncio.create_task(change())
            await until(waiting, within=10, what="the change waits")
            assert not changing.done()
        await changing
