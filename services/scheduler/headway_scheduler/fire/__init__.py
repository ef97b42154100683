"""Fire: gather the manifests that are due, decide, and record the decisions in one transaction.

`tick` finds due manifests and leads, `manifest` reads them, `decide` applies the rules of
`headway_decisions.firing`, `record` writes occurrences, work and next times, and `outbound_events`
builds the messages for the outbox. Other rooms use `decide` to move manifests on.
"""
