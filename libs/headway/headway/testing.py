"""Time you can own: `World` runs an app's real services under a virtual clock.

The package `headway-testing` brings it, with the servers that it needs; this is the name under
which users import it, so that `headway` itself stays light to install.
"""

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    """What `headway_testing` offers."""
    if name.startswith("_"):
        raise AttributeError(name)
    try:
        package = importlib.import_module("headway_testing")
    except ModuleNotFoundError as error:
        raise ImportError(
            "headway.testing needs the package 'headway-testing': add it to your test dependencies"
        ) from error
    return getattr(package, name)
