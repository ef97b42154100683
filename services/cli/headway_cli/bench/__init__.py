"""`headway bench`: what Headway does on this machine, in figures.

Servers and services start as processes of their own, so that the cost of each can be told, and
end with the command. A scenario is a stretch of work between two readings of the counters:
processor time from the system, statements and rows from PostgreSQL, messages from NATS. All
figures move with the machine; compare those of one machine, and best those of one run.
"""
