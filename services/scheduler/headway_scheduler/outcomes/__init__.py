"""Outcomes: receive events of the dispatcher, settle work, move manifests on, activate dependents.

`settle.take_in` applies each batch in one transaction: activations first (`activate`), then
resolved dead letters (`resolve`), outcomes and confirmed prunes.
"""
