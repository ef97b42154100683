"""Timing: the fire times of a manifest.

A `Timing` is a cadence in a zone, with filters and exclusions. `cadence` and `cron` compute fires
on the naive wall clock, `calendar` narrows them, and `wall_clock` converts them to instants over
DST. `timing` combines these into due and allowed times. `timing_problems` validates definitions,
and `times` parses dates and times that users write.
"""
