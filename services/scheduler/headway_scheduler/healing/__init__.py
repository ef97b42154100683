"""Healing: reconcile unsettled work and settings with the dispatcher, and republish lost messages.

NATS may lose anything at any time, its whole storage included. `healing` is the pass: one scheduler
at a time asks the dispatcher about outstanding work, page by page, and about
settings, dead letters and prunes (`reconcile_settings`). `stream_marks` tells whether a message may
still wait in its stream. A message that cannot is published again (`republish`).
"""
