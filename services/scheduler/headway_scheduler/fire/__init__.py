"""Fire: gather the manifests that are due, decide, and record the decisions in one transaction.

`tick` finds due manifests and leads. `manifest` reads them (gather), `decide` applies the rules of
`headway_decisions.firing`, and `record` writes occurrences, work, next times and messages. The
other folders use `decide` to move manifests on, and `outbound_events` for all other messages.
"""
