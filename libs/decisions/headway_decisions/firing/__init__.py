"""Firing: the decisions about a manifest whose time has come.

`due.judge` takes a manifest's state (`manifest_state`) and returns a verdict: ledger entries,
releases and the next wake-up. `misfires` chooses which due times fire, by the misfire and overlap
policies. `jitter` delays a due time, `identity` derives causes and work ids, `fairness` shares a
cycle between groups, and `backfill` lists the occurrences of a past range.
"""
