"""Exceptions that the body of a job may raise or catch."""


class Fatal(Exception):
    """Retrying does not help: the run fails and its work becomes a dead letter at once."""


class ActivationRefused(Exception):
    """The activation is invalid and nothing was activated. The message lists all problems."""


class ActivationUnavailable(Exception):
    """The activation could not be checked and nothing was activated; a retry may succeed."""


class LeaseLost(Exception):
    """The worker has lost the lease of the run; its results are ignored."""
