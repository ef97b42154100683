"""Define: jobs, cadences, policies and groups as users write them, checked and assembled into
definitions.
"""
