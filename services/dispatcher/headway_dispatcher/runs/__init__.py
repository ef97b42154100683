"""Runs: leases, heartbeats, projection of worker events, settlement, and the reaper."""
