"""Operate: requests of people and programs that change manifests, groups, jobs, pauses and
enqueued work.
"""
