"""History: append, verify, rebuild, export and prune the event history."""
