"""Shared by tests: real servers, a world of services, processes to kill, invariants."""
