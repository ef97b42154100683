"""The scheduler: decides when work is due.

It keeps what applications declare (`declare`), and whenever a manifest's time has come it
writes the occurrence, the work and the event that announces it in one transaction
(`tick`). It hears from the dispatcher how work ended and moves the manifest on
(`intake`). It never looks at capacity.

Any number of schedulers may run. One of them ticks at a time, by an advisory lock; should
two ever tick at once, the ledger's key lets each occurrence be decided only once.
"""
