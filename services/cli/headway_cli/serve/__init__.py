"""Serve: the service commands, and how other commands find and ask a running Headway."""
