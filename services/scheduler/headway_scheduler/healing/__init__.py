"""Healing: ask the dispatcher about unsettled work and settings, and republish lost messages."""
