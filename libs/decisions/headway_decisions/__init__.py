"""The pure core: every rule of Headway, as functions of plain data and time.

Nothing here waits, reads a clock or uses randomness. A pass of a service gathers plain data, gets
verdicts with reasons from this package, and records them:

- `timing`: when a manifest should fire, in its zone, over DST.
- `firing`: what a tick does with a due manifest, and the cause and id of its work.
- `declaring`: which source may declare an application, and who owns each setting.
- `capacity`: which work the gate admits, and why other work waits.
- `runs`: which lifecycle events count, and the states of runs and work.
- `retries`: what follows a failure, a dead letter or a failed notification.
- `healing`: what a missing message means, and which consumers must exist.
"""
