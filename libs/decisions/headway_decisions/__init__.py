"""The pure core: every rule of Headway, as functions of plain data and time.

Nothing here waits, reads a clock or uses randomness. A pass of a service gathers plain data, gets
verdicts with reasons from this package, and records them. `timing` computes fire times, `firing`
decides due manifests, `declaring` owners and sources, `capacity` the admission of work, `runs` the
states that follow from events, `retries` the steps after a failure, and `healing` lost messages.
"""
