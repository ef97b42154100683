"""Firing: what to do with a due manifest: fire, skip, catch up or wait."""
