"""Notifications by webhook: dead letters, missed fires and blocked manifests.

Whoever records such a fact notes it (`facts`). If a webhook is configured, `Recorder` writes the
noted facts to `scheduler.notification` just before the transaction commits, so there is a
notification exactly if there is the fact. `Delivery` is the pass that sends them: it claims a few,
posts each (`webhook`), and writes down how that ended. Failures are repeated with growing pauses
until a horizon. A crowd of one type is folded into a digest, so that a flood is a few requests.
Every final outcome is in the audit.
"""
