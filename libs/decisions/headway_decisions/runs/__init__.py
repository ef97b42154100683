"""Runs: from lifecycle events to states.

`acceptance` decides which events of a lease count, and `folding` folds accepted events into the
record of a run, in any order. `transitions` is the table of states, and `diagrams` draws it.
`reaping` ends the runs of a lost lease, `progress` keeps progress and log lines, and
`report_limits` bounds everything that workers send.
"""
