"""Outcomes: take in settled work from dispatchers, move manifests on and queue dependents."""
