"""Exceptions that a job's body may raise to say more than that it failed."""


class Fatal(Exception):
    """Retrying will not help: the run fails and its work goes to the dead letters at once."""
