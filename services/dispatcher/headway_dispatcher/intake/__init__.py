"""Intake: store work, limits, cancels and prunes that the scheduler publishes."""
