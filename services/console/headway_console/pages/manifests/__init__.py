"""Manifests: the list, and one with its calendar, settings and actions."""
