"""Random histories of manifests: each due time has one decision, no tick spins, and no one-shot is
stuck.
"""

from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from headway import (
    App,
    allow,
    catch_up,
    cron,
    daily,
    every,
    exclude_days,
    exclude_times,
    once,
    skip_missed,
    spaced,
)
from headway_contract.manifests import (
    LedgerQuestion,
    PauseRequest,
    ResumeRequest,
)
from headway_errors import Rejected
from headway_scheduler.explain.ledger_check import OVERDUE, check_page
from headway_scheduler.operate import pause
from support.tiers import first_in_each_tier
from support.timeline import Timeline

NAMES = ("a", "b")
ZONES = ("UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/New_York")
# Around changes of daylight saving time, and far from any.
STARTS = ((2027, 3, 26), (2027, 10, 30), (2027, 4, 2), (2027, 6, 1))
STEPS = (1, 60, 600, 3600, 7200, 36_000)


class History:
    """Two manifests with random changes."""

    def __init__(self, timeline: Timeline, chance: Random) -> None:
        self.timeline = timeline
        self.chance = chance
        self.letters = {}
        self.acts = (
            self.declare,
            self.omit_the_other,
            self.switch,
            self.switch_group,
            self.settle,
            self.settle,
            self.fail_or_resolve,
            self.trigger,
            self.pause,
            self.resume,
            self.change_jitter,
        )

    async def run_for(self, seconds: float) -> None:
        """Run every tick that is due within these seconds."""
        clock, idle = self.timeline.clock, 0
        until = clock.at + timedelta(seconds=seconds)
        while True:
            result = await self.timeline.tick()
            if result.next_at is None or result.next_at > until:
                break
            idle = idle + 1 if result.next_at <= clock.at else 0
            assert idle < 5, "the tick spins without work"
            clock.at = max(clock.at, result.next_at)
        clock.at = until

    def app(self, *names: str) -> App:
        app = App("test")
        app.job("job", group="ops")(lambda ctx: None)
        for name in names:
            app.schedule(
                name,
                job="job",
                when=self.when(),
                overlap=self.chance.choice(["skip", "queue_one", allow(2), "cancel_running"]),
                misfire=self.chance.choice(["fire_once", skip_missed(), catch_up(3)]),
            )
        return app

    def when(self):
        exclusion = self.chance.choice([exclude_times("01:00-03:30"), exclude_days("sat")])
        shot = self.timeline.clock.at + timedelta(minutes=self.chance.choice([-300, -1, 30, 3000]))
        make, *given = self.chance.choice(
            [
                (every, {"minutes": self.chance.choice([7, 30, 45]), "between": "22:00-02:00"}),
                (every, {"minutes": 20, "weekdays": "weekends", "exclude": exclusion}),
                (every, {"hours": self.chance.choice([1, 2, 5]), "exclude": exclusion}),
                (daily, "02:30", {}),
                (cron, "*/20 * * * *", {"between": "01:00-05:00", "exclude": exclusion}),
                (spaced, {"minutes": 50, "between": "09:00-17:00", "exclude": exclusion}),
                (once, f"{shot:%Y-%m-%d %H:%M}", {}),
            ]
        )
        *positional, options = given
        terms = {"tz": self.chance.choice(ZONES), "jitter": self.chance.choice([0, 0, 1800])}
        return make(*positional, **options, **terms)

    async def declare(self, name: str) -> None:
        await self.timeline.declare(self.app(*NAMES))

    async def omit_the_other(self, name: str) -> None:
        await self.timeline.declare(self.app(name), prune="disable")
        await self.run_for(self.chance.choice(STEPS))
        await self.timeline.declare(self.app(*NAMES), prune="disable")

    async def switch(self, name: str) -> None:
        enabled = not (await self.timeline.manifest(name))["enabled"]
        try:
            await self.timeline.change(name, enabled=enabled)
        except Rejected as refused:
            if "is a one-shot" not in str(refused):
                raise

    async def switch_group(self, name: str) -> None:
        [row] = await self.timeline.rows("SELECT enabled FROM scheduler.manifest_group")
        await self.timeline.change_group("ops", enabled=not row["enabled"])

    async def settle(self, name: str) -> None:
        if await self.timeline.under_way(name):
            await self.timeline.settle(name, self.chance.choice(["completed", "cancelled"]))

    async def fail_or_resolve(self, name: str) -> None:
        if name in self.letters:
            retried = self.chance.random() < 0.5
            await self.timeline.resolve(name, *self.letters.pop(name), retried=retried)
        elif await self.timeline.under_way(name):
            self.letters[name] = await self.timeline.dead_letter(name)

    async def trigger(self, name: str) -> None:
        if name not in self.letters:
            await self.timeline.trigger(name)

    async def pause(self, name: str) -> None:
        await self.timeline.do(pause.pause, PauseRequest(manifests=[name]))

    async def resume(self, name: str) -> None:
        await self.timeline.do(pause.resume, ResumeRequest(manifests=[name]))

    async def change_jitter(self, name: str) -> None:
        jitter = self.chance.choice([0.0, 60.0, 2000.0])
        await self.timeline.change(name, jitter_seconds=jitter)


async def gaps(timeline: Timeline) -> list:
    found = await check_page(timeline.database, LedgerQuestion(), kept=timedelta(days=300))
    return [gap for gap in found.gaps if gap.trouble != OVERDUE]


async def stuck(timeline: Timeline) -> list:
    """Return enabled one-shots without a due time or work."""
    rows = await timeline.rows(
        "SELECT external_id FROM scheduler.manifest WHERE enabled AND next_due_at IS NULL"
        " AND timing #>> '{cadence,type}' = 'once' AND pruning_at IS NULL"
        " AND NOT EXISTS (SELECT FROM scheduler.work WHERE manifest_id = manifest.id)"
        " AND NOT EXISTS (SELECT FROM scheduler.occurrence"
        "                 WHERE manifest_id = manifest.id AND decision = 'owed')"
    )
    return [row["external_id"] for row in rows]


@pytest.mark.parametrize("seed", first_in_each_tier(range(8), first=3))
async def test_every_due_time_has_one_decision(timeline, seed):
    chance = Random(seed)
    timeline.clock.at = datetime(*chance.choice(STARTS), 12, tzinfo=UTC)
    history = History(timeline, chance)
    await history.declare("a")
    for _ in range(50):
        # Sometimes no scheduler ticks.
        seconds = chance.choice(STEPS)
        if chance.random() < 0.7:
            await history.run_for(seconds)
        else:
            timeline.clock.at += timedelta(seconds=seconds)
        await chance.choice(history.acts)(chance.choice(NAMES))
        assert await gaps(timeline) == []
        assert await stuck(timeline) == []
