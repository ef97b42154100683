"""The dispatcher: drives each piece of work to a settled outcome.

It takes work in (`intake`), admits as much of it as capacity allows and orders runs from
workers (`gate`), projects what workers tell about them (`projector`), decides what follows
an outcome (`settling`), listens to heartbeats (`heartbeats`), answers whose a lease is
(`leases`), and takes leases away from workers that fell silent (`reaper`). It keeps what
runs tell of themselves while they run (`progress`). It ends work early when asked to
(`cancels`), and forgets manifests that are gone (`prunes`). Operators ask it for all of
that, and see to work that failed for good (`desk`, `letters`). It never looks at a schedule.

Any number of dispatchers may run; caps hold over all of them, because only the gate
raises the number of active runs, and the gate counts after it has taken its lock.
"""
