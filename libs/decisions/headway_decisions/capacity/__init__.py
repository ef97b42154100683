"""Capacity: caps, keys, rates and slots, and why work waits for them."""
