"""Runs: from lifecycle events to states.

`acceptance` decides which events of a lease count, `folding` folds them into the record of a run,
`transitions` is the table of states, `reaping` ends the runs of a lost lease, and `report_limits`
bounds everything that workers send.
"""
