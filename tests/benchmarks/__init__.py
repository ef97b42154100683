"""Benchmarks: Headway, and other queues beside it, on one machine in one run.

`./justw bench --peers` measures everything; `__main__` chooses what to measure, `workloads` measures
Headway, and `peers` measures the others through `adapters`, each in an environment of its own.
`targets` compares the figures with what they should be, and `page` writes docs/performance.md from
them. `./justw bench NAME` runs one of the other modules: capacity, console_reads or scheduling.
"""
