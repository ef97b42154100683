"""Runs: the transition table, event acceptance, folding and reaping."""
