"""`headway bench`: measure Headway on this machine.

Servers and services are separate processes, so that the cost of each can be measured. A scenario
is work between two readings of the counters: CPU time of processes, statements and rows of
PostgreSQL, bytes of WAL, messages of NATS. The start-up of a worker is not counted. Compare figures
of one machine only, best of one run.
"""
