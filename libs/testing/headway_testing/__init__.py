"""Virtual time for tests: the real services on embedded servers, under a clock that a test sets.

    async def test_a_quarter(headway_world):
        world = await headway_world(app, start="2027-01-01")
        await world.run_until("2027-04-01")
        world.assert_fired("report", times=90)

Scheduler, dispatcher and worker are those of production, on a real PostgreSQL and a real NATS. Only
schedule time is virtual: it stands still while anything is in flight, and then jumps to the next
event. Heartbeats, leases and timeouts of bodies use the real clock, so a job that hangs is detected
as usual.

Users import `world` as `headway.testing`. Nothing is imported here, because pytest imports this
package at every start, for its plugin.
"""
