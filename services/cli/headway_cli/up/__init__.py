"""The `up` command: embedded servers, services, workers and the live view."""
