"""Explain: why a manifest fired or did not, from the ledger, the audit and the timing."""
