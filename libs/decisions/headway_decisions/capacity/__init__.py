"""Capacity: which work may run now.

`capacity.Room` holds the rest of every limit during one pass of the gate and admits candidates one
by one, or holds them with a reason. `slots` counts the idle slots of workers, `rates` limits starts
in a period, and `keys` renders concurrency keys. `waiting` explains each gate of one piece of work
and estimates its start.
"""
