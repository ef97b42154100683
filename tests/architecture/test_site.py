"""The documentation site: every page has its place, and no link leaves it."""

import re
from pathlib import Path

import pytest
import yaml
from headway_cli.commands import COMMANDS

from generators.site.__main__ import loaded
from generators.site.decisions import title
from generators.site.pages import stage

ROOT = Path(__file__).parents[2]


class Loader(yaml.SafeLoader):
    """Reads the settings of MkDocs, which name functions of Python."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/name:", lambda *_: None)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    target = tmp_path_factory.mktemp("site")
    assert stage(ROOT, target) == []
    return target


def entries(nav) -> list[str]:
    """Return the pages of a navigation."""
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [page for part in parts for page in entries(part)]


def test_the_navigation_has_every_page_once(site):
    settings = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)
    listed = entries(settings["nav"])
    written = {str(path.relative_to(site)) for path in site.rglob("*.md")}
    assert len(listed) == len(set(listed)) > 40
    assert set(listed) <= written
    others = written - set(listed)
    assert {page for page in others if not page.startswith(("source/", "adr/0"))} == set()


def test_every_decision_is_listed_with_its_title(site):
    page = (site / "adr" / "README.md").read_text()
    decisions = sorted((ROOT / "docs" / "adr").glob("0*.md"))
    assert re.findall(r"\]\((0.+)\)", page) == [path.name for path in decisions]
    assert all(f"[{title(path)}]" in page for path in decisions)


def test_every_command_is_described(site):
    page = (site / "reference" / "commands.md").read_text()
    assert {name for name in COMMANDS if f"### `headway {name}`" not in page} == set()


def test_parts_of_a_page_from_elsewhere_are_found(tmp_path):
    page = tmp_path / "page.html"
    page.write_text('<a href="https://x.example"><script src=https://y.example/m.js></script>')
    assert loaded(page) == ["https://y.example/m.js"]


def test_a_dead_link_is_reported(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text("[gone](gone.md) [code](../code.py)\n")
    (tmp_path / "code.py").write_text("x = 1\n")
    for name in (
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "libs/testing/README.md",
        "libs/embedded/README.md",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert stage(tmp_path, tmp_path / "out") == ["docs/page.md: the link to gone.md leads nowhere"]
    assert "source/code.py.md" in (tmp_path / "out" / "page.md").read_text()
