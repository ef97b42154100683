"""Commands about work, runs, workers, events and dead letters."""
