"""Tests under the virtual clock as the pages show them."""

import pytest
from support.code_blocks import blocks_of

WORLDS = [block for block in blocks_of("python") if "World(app" in block.text]
BLOCKS = [
    block
    for block in blocks_of("python")
    if "headway_world" in block.text and "app = App(" in block.text
]
# One of them runs with `just test`; the others show the same mechanism with other arguments.
PROMPT = "docs/tutorial.md"


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(block, marks=[] if PROMPT in block.name else [pytest.mark.thorough])
        for block in BLOCKS
    ],
    ids=lambda block: block.name,
)
async def test_the_tests_of_a_page_pass(block, headway_world):
    names = {"__name__": "example"}
    exec(compile(block.text, block.name, "exec"), names)
    tests = [test for name, test in names.items() if name.startswith("test_")]
    assert tests
    for test in tests:
        await test(headway_world)


@pytest.mark.thorough
@pytest.mark.parametrize("block", WORLDS, ids=lambda block: block.name)
async def test_a_world_without_pytest(block):
    names = {"__name__": "example"}
    exec(compile(block.text, block.name, "exec"), names)
    await names["main"]()
