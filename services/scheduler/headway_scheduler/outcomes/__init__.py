"""Outcomes: receive events of the dispatcher, settle work, move manifests on, activate dependents.

`intake` applies each batch in one transaction: `activate` first, then resolved dead letters and
outcomes (`settle`), then confirmed prunes.
"""
