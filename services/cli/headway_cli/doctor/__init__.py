"""`headway doctor`: checks a set-up and prints a remedy for each problem.

It checks what is configured: this machine, the console and the system behind it (`system`),
PostgreSQL (`postgresql`) and NATS (`nats`). Each module gathers facts, and pure functions turn them
into findings. Schemas are checked by the migrations themselves, streams and consumers by the
inspection that services use at their start, passes by the console's overview.
"""
