"""The dispatcher: drive each piece of work to a settled outcome.

`intake` stores work, limits, cancels and prunes that the scheduler publishes. `gate` admits work
within the limits and orders runs. `runs` projects the events of workers, settles work, answers
heartbeats, revokes leases of silent workers and republishes lost orders. `letters` retries work
that failed for good. `operate` answers people, programs and the scheduler. `history` verifies,
rebuilds and prunes the tables. It never looks at a schedule.

Any number of dispatchers may run. Limits hold over all of them, because only the gate raises the
number of active runs, and it counts after it has taken its lock.
"""
