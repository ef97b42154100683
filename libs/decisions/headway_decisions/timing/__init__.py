"""Timing: cadences, zones, filters and exclusions, and the fire times that follow from them."""
