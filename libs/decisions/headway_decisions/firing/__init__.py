"""Firing: the decisions about a manifest whose time has come.

`due.judge` takes a manifest's state (`manifest_state`) and returns a verdict. `misfires` chooses
which due times fire or are backfilled, `jitter` delays them, `identity` derives causes and work
ids, and `fairness` shares a cycle between groups.
"""
