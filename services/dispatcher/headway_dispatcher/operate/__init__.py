"""Operate: requests of people, programs and the scheduler: cancel, drain, explain, reconcile."""
