"""`World` runs the real services of an app under a virtual clock.

The package `headway-testing` contains it, with the servers that it needs. This module is the name
under which users import it, so that `headway` itself has few dependencies.
"""

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    """Return a name of `headway_testing.world`."""
    if name.startswith("_"):
        raise AttributeError(name)
    try:
        importlib.import_module("headway_testing")
    except ModuleNotFoundError as error:
        raise ImportError(
            "headway.testing needs the package headway-testing: pip install 'headway[testing]'"
        ) from error
    return getattr(importlib.import_module("headway_testing.world"), name)
