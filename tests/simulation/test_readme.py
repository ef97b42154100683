"""The example of the README, as it stands there."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.thorough
async def test_the_readmes_quarter(headway_world):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    [app_block] = [block for block in blocks if block.startswith("# app.py")]
    [test_block] = [block for block in blocks if "headway_world" in block]
    # Every five seconds for a quarter would be a million runs.
    names = {}
    exec(app_block.replace("every(seconds=5)", "every(days=30)"), names)
    exec(test_block, names)
    await names["test_a_quarter"](headway_world)
