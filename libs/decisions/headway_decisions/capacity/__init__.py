"""Capacity: which work may run now.

`capacity.Room` holds the rest of every limit during one pass of the gate and admits candidates, or
holds them with a reason. `slots` counts idle slots, `rates` limits starts in a period, `keys`
renders concurrency keys, and `waiting` explains each gate of one piece of work.
"""
