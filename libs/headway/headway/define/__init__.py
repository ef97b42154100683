"""Definitions as users write them: jobs, cadences, options, groups and chains.

`app` collects declarations (`declarations`), `assembly` combines and checks them (`checks`), and
the result is plain data (`definitions`), which `packing` sends to the scheduler.
"""
