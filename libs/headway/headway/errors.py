"""Exceptions that a job's body may raise to say more than that it failed, or may meet."""


class Fatal(Exception):
    """Retrying will not help: the run fails and its work goes to the dead letters at once."""


class ActivationRefused(Exception):
    """Dependents cannot be woken so; nothing was activated. Tells every problem on a line."""


class ActivationUnavailable(Exception):
    """Nobody could say whether dependents may be woken; nothing was activated.

    A run that fails with it is tried again like any other.
    """


class LeaseLost(Exception):
    """The run is no longer this worker's: it was taken away, and what it says does not count."""
