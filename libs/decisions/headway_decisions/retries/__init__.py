"""Retries: what follows a failed run, a dead letter or a failed notification."""
