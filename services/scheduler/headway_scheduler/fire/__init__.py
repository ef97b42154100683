"""Fire: gather the manifests that are due, decide, and record the decisions in one transaction.

`tick` finds due manifests, leads and records. `decide` reads them and applies the rules of
`headway_decisions.firing`. The other folders close the past of manifests (`missed`) before they
change them, and announce their changes with `outbound_events`.
"""
