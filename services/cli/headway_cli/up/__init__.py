"""`headway up`: everything in one command.

Scheduler, dispatcher and console run in this process (`services`); the app's worker and worker
commands run in child processes (`processes`). PostgreSQL and NATS are embedded
unless URLs name others. `plan` reads and checks all settings first, `screen` shows the live view of
`top`, `summary` reads the report. All parts end with this process.
"""
