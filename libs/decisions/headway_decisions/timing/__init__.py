"""Timing: the fire times of a manifest.

`cadence` and `cron` compute fires on the naive wall clock, `calendar` narrows them, `wall_clock`
converts them to instants over DST, and `timing` combines these. `timing_problems` validates
definitions, and `times` parses dates and times that users write.
"""
