"""The guides: every test that they name exists, and every link leads somewhere."""

import ast
import re
from functools import cache
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from support.code_blocks import PAGES
from support.promises import PARITY, RELIABILITY, TRAPS, named_tests, promised_tests

ROOT = Path(__file__).parents[2]
_CODE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# Texts of a row of the parity table that names no test.
_NO_TEST = ("**no test yet**", "nothing to show")
# Text of a row of the tables of traps that names no test.
_CANNOT_BITE = "cannot bite"


@cache
def known_tests(path: Path) -> set[str]:
    """The tests of a file: functions by their name, methods as `Class::name`."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}::{member.name}"
                for member in node.body
                if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return {name for name in found if name.rpartition("::")[2].startswith("test_")}


def missing_tests(text: str, root: Path) -> list[str]:
    """The tests that a text names and that are not there."""
    return [
        f"{file}::{test}"
        for file, test in named_tests(text)
        if not (root / file).is_file() or test not in known_tests(root / file)
    ]


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub derives them."""
    headings = re.findall(r"^#+ (.+)$", _CODE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def leads_nowhere(target: str, text: str, folder: Path) -> bool:
    """Whether a link's file does not exist, or its page has no such heading."""
    file, _, anchor = target.partition("#")
    if file and not (folder / file).exists():
        return True
    is_page = not file or file.endswith(".md")
    page = (folder / file).read_text() if file and is_page else text
    return bool(anchor and is_page) and anchor not in anchors(page)


def dead_links(text: str, folder: Path) -> list[str]:
    """The relative links of a page that lead nowhere."""
    return [
        target
        for target in _LINK.findall(_CODE.sub("", text))
        if not re.match(r"[a-z]+:", target) and leads_nowhere(target, text, folder)
    ]


def rows_of(text: str) -> list[list[str]]:
    """The rows of all tables of a page, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    heads = {number - 1 for number, line in enumerate(lines) if set(line) <= set("|- ")}
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [
        row
        for number, row in enumerate(cells)
        if number not in heads and set("".join(row)) - set("- |")
    ]


@pytest.mark.parametrize(
    ("page", "at_least"),
    [(PARITY, 50), (RELIABILITY, 50), (TRAPS, 50)],
    ids=["parity", "reliability", "traps"],
)
def test_every_test_that_a_page_names_exists(page, at_least):
    text = page.read_text()
    assert len(named_tests(text)) > at_least
    assert missing_tests(text, ROOT) == []


def test_every_row_of_the_parity_page_is_complete():
    rows = rows_of(PARITY.read_text())
    assert len(rows) > 50
    for row in rows:
        assert len(row) == 3, row
        assert named_tests(row[2]) or row[2].startswith(_NO_TEST), row


def test_every_trap_and_every_fault_has_a_test_or_says_why_not():
    rows = rows_of(RELIABILITY.read_text()) + rows_of(TRAPS.read_text())
    assert len(rows) > 60
    for row in rows:
        assert len(row) in (3, 4), row
        assert named_tests(row[-1]) or row[-1].startswith(_CANNOT_BITE), row


def long_tests(path: Path) -> set[str]:
    """Return the tests of a file that run with `just faults` only."""
    tree = ast.parse(path.read_text())
    marks = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]
    if any("pytest.mark.long" in ast.unparse(mark) for mark in marks):
        return known_tests(path)
    found = set()
    for node in tree.body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        for member in members:
            if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
                above = [*getattr(node, "decorator_list", []), *member.decorator_list]
                if any(ast.unparse(mark) == "pytest.mark.long" for mark in above):
                    found.add(prefix + member.name)
    return found


def test_every_promise_has_a_test_that_is_not_long():
    promises = [row for row in rows_of(RELIABILITY.read_text()) if row[0].startswith("**I")]
    assert len(promises) == 10
    for row in promises:
        named = named_tests(row[-1])
        assert any(test not in long_tests(ROOT / file) for file, test in named), row[0]


def test_tests_that_the_docs_name_are_marked_as_promised(request):
    """`just test` runs them even if their module is marked as thorough."""
    named = promised_tests()
    marked = {
        item.nodeid.partition("[")[0]
        for item in request.session.items
        if item.get_closest_marker("promised")
    }
    collected = {item.nodeid.partition("[")[0] for item in request.session.items}
    assert marked == named & collected


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    assert dead_links(page.read_text(), page.parent) == []


def test_the_readme_is_short_and_its_recording_small():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120
    recording = (ROOT / "docs" / "recording.svg").read_text()
    assert len(recording) < 200_000
    links = [
        value
        for element in ET.fromstring(recording).iter()
        for name, value in element.items()
        if name.endswith(("href", "src"))
    ]
    assert links
    assert [link for link in links if not link.startswith("#")] == []
    assert not re.search(r"url\(|@import|@font-face", recording)
    assert str(ROOT) not in recording, "a traceback names the checkout"


def test_the_checks_themselves_bite(tmp_path):
    file = tmp_path / "tests" / "test_a.py"
    file.parent.mkdir()
    file.write_text("def test_one(): ...\nclass TestA:\n    def test_two(self): ...\n")
    named = "`tests/test_a.py::{}` and `tests/test_a.py::{}`"
    assert missing_tests(named.format("test_one", "TestA::test_two"), tmp_path) == []
    assert missing_tests(named.format("test_two", "TestA::test_one"), tmp_path) == [
        "tests/test_a.py::test_two",
        "tests/test_a.py::TestA::test_one",
    ]
    assert missing_tests("`tests/test_b.py::test_one`", tmp_path) == ["tests/test_b.py::test_one"]
    links = "[a](tests/test_a.py#x) [b](gone.md) [c](https://example.com) [d](#here) [e](#gone)"
    assert dead_links(f"# Here\n\n{links}\n", tmp_path) == ["gone.md", "#gone"]
    assert dead_links(f"```text\n{links}\n```\n", tmp_path) == []
    assert rows_of("| a | b |\n|---|---|\n| 1 | 2 |\n") == [["1", "2"]]
