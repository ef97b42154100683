"""`headway doctor`: checks a set-up and prints a remedy for each problem.

It checks the settings, the console and the system (`system`), PostgreSQL (`postgresql`) and NATS
(`nats`), as far as they are configured. In each module a `check` function gathers facts, and pure
`judge` functions turn them into findings. Schemas are checked by the migrations themselves, streams
and consumers by the inspection that services use at their start, the system by the console's
overview, read from the tables.
"""
