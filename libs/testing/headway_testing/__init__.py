"""Time you can own: the real services on embedded servers, under a virtual clock.

    async def test_a_quarter(headway_world):
        world = await headway_world(app, start="2027-01-01")
        await world.run_until("2027-04-01")
        world.assert_fired("report", times=90)

Scheduler, dispatcher and worker are the ones that run in production, on a real PostgreSQL and
a real NATS. Only the time of their decisions is the world's own: it stands still while
anything is in flight, and then jumps to whatever comes next. Liveness (heartbeats, leases,
timeouts of bodies) goes by the real clock, so a job that hangs is noticed as ever.

Users import this as `headway.testing`.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway_testing.clock import VirtualClock as VirtualClock
    from headway_testing.world import Fire as Fire
    from headway_testing.world import Skip as Skip
    from headway_testing.world import World as World

__all__ = ["Fire", "Skip", "VirtualClock", "World"]


def __getattr__(name: str) -> Any:
    """Load on demand: pytest imports this package at every start, for its plugin."""
    place = {"VirtualClock": "clock", "Fire": "world", "Skip": "world", "World": "world"}.get(name)
    if place is None:
        raise AttributeError(name)
    return getattr(importlib.import_module(f"headway_testing.{place}"), name)
