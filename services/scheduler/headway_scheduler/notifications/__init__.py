"""Notifications by webhook: dead letters, missed fires and blocked manifests.

Transactions note such facts. If a webhook is configured, `recorder` writes the noted facts to
`scheduler.notification` just before the commit, so there is a notification exactly if there is the
fact. `Delivery` is the pass that sends them: it claims a few, posts each (`webhook`) and stores the
outcome. Failed attempts are repeated with growing pauses up to a horizon. Many notifications of one
type are folded into a digest. Every final outcome is in the audit.
"""
