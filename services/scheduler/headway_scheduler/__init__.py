"""The scheduler: decides when work is due.

It stores the definitions of applications (`declare`). When a manifest comes due it writes the
occurrence, the work and the event that announces it in one transaction (`fire`). It receives
outcomes from the dispatcher and moves manifests on (`outcomes`). It never looks at capacity.

Any number of schedulers may run. An advisory lock lets one of them tick at a time; if two ever tick
at once, the key of the ledger lets each occurrence be decided only once.
"""
