"""The pure core: every rule of Headway, as functions of plain data and time.

Nothing here waits, reads a clock or throws dice. A pass of a service gathers plain data,
asks this package for verdicts with reasons, and records them. Where to look:

- `cadence`, `cron`, `wall_clock`: when a manifest should fire, in its zone, over DST.
- `due`: what a tick does with one manifest.
- `capacity`: what the gate lets through.
- `acceptance`: which lifecycle events count, and whose a lease is.
- `transitions`, `folding`: the life of a run, as a table and as a fold of its events.
- `retries`: what follows a failure.
- `identity`: the cause of work and the id that is derived from it.
"""
