"""The app of the README, as it stands there."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.thorough
async def test_the_app_of_the_readme_for_a_quarter(headway_world):
    [text] = re.findall(r"```python\n(# app\.py\n.*?)```", README.read_text(), re.DOTALL)
    names = {}
    exec(text, names)
    world = await headway_world(names["app"], start="2027-01-01")
    await world.run_until("2027-04-01")
    # One of them at the end of winter time, when 02:30 does not exist.
    world.assert_fired("nightly-report-daily", times=90, outcome="completed")
    world.assert_fired("import-orders-every", times=1, outcome="dead_lettered")
