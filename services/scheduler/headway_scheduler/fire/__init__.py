"""Fire: decide which manifests are due, record the decision, the work and its event in one
transaction.
"""
