"""Problems of an app's definitions."""

import pytest
from headway import (
    App,
    InvalidDefinitions,
)


def problems(app: App) -> list[str]:
    with pytest.raises(InvalidDefinitions) as caught:
        app.definitions()
    return caught.value.problems
