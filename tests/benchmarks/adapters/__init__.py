"""One module for each peer; each runs in the environment of that peer, not in ours.

A module has `setup`, `connect`, `enqueue`, `send`, `pending` and `worker`; its job does nothing but
record that it ran. `run` is the program that calls them.
"""
