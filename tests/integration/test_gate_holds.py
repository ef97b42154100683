"""Work that a disabled group or manifest holds back at the gate."""

from uuid import uuid4

import pytest
from headway_contract.work import (
    GroupChanged,
    RetryPolicy,
)
from support.gates import SECOND, START, bring_forward, switch, waiting_reasons, work

pytestmark = pytest.mark.thorough


class TestHolds:
    async def test_a_disabled_group_holds_everything_until_it_is_enabled(self, gates):
        await gates.tell(GroupChanged(group="etl", version=1, enabled=False))
        await gates.queue(work(), work(explicit=True), work(group="other"))
        assert await gates.drain() == 1
        assert await waiting_reasons(gates) == ["group_disabled"] * 2
        await gates.tell(GroupChanged(group="etl", version=2))
        assert await gates.drain() == 2

    async def test_a_disabled_manifest_holds_scheduled_work_but_not_triggered_work(self, gates):
        manifest = uuid4()
        held = work(manifest_id=manifest, manifest="m")
        triggered = work(manifest_id=manifest, manifest="m", slot=1, explicit=True)
        await gates.queue(held, triggered, work(manifest_id=uuid4(), manifest="n"))
        await gates.tell(switch(manifest, 2, enabled=False))
        assert await gates.drain() == 2
        assert await gates.reasons() == {held.work: "manifest_disabled"}
        # An older version that arrives late does not enable the manifest.
        await gates.tell(switch(manifest, 1, enabled=True))
        assert await gates.drain() == 0
        await gates.tell(switch(manifest, 3, enabled=True))
        assert await gates.drain() == 1

    async def test_work_that_comes_while_its_manifest_is_disabled_is_held(self, gates):
        manifest = uuid4()
        await gates.tell(switch(manifest, 1, enabled=False))
        [held] = await gates.queue(work(manifest_id=manifest, manifest="m"))
        assert await gates.drain() == 0
        assert await gates.reasons() == {held: "manifest_disabled"}
        await gates.tell(switch(manifest, 2, enabled=True))
        assert await gates.drain() == 1

    async def test_retries_are_held_too(self, gates, clock):
        manifest = uuid4()
        [held] = await gates.queue(
            work(
                manifest_id=manifest, manifest="m", retry=RetryPolicy(interval_seconds=1, jitter=0)
            )
        )
        assert await gates.drain() == 1
        await gates.tell(switch(manifest, 1, enabled=False))
        await gates.end(failure="Oops")
        clock.at = START + 2 * SECOND
        assert await gates.drain() == 0
        assert await gates.reasons() == {held: "manifest_disabled"}
        await gates.tell(switch(manifest, 2, enabled=True))
        assert await gates.drain() == 1

    async def test_run_now_does_not_need_an_enabled_manifest(self, gates):
        manifest = uuid4()
        [held] = await gates.queue(work(manifest_id=manifest, manifest="m"))
        await gates.tell(switch(manifest, 1, enabled=False))
        assert await gates.drain() == 0
        async with gates.database.transaction() as connection:
            await bring_forward(connection, held)
        assert await gates.drain() == 1

    async def test_keyed_work_of_a_manifest_that_is_enabled_again_waits_for_its_key(self, gates):
        manifest = uuid4()
        await gates.tell(switch(manifest, 1, enabled=False))
        await gates.queue(work(manifest_id=manifest, manifest="m", concurrency_key="k"))
        assert await gates.drain() == 0
        await gates.queue(work(concurrency_key="k"))
        assert await gates.drain() == 1
        await gates.tell(switch(manifest, 2, enabled=True))
        assert await gates.drain() == 0
        await gates.end()
        assert await gates.drain() == 1

    async def test_held_work_does_not_delay_other_work(self, gates):
        manifest = uuid4()
        await gates.tell(GroupChanged(group="etl", version=1, max_active=1))
        await gates.tell(switch(manifest, 1, enabled=False))
        for number in range(5):
            await gates.queue(work(manifest_id=manifest, manifest="m", slot=number))
        await gates.queue(work(queued_at=START + 9 * SECOND))
        assert await gates.drain() == 1
