"""`just release` refuses what is not ready, and makes files that belong together."""

import hashlib
import json
import shutil
import sys
import tarfile

import pytest
from release import CHECKSUMS, NOTES, Refused, check_tree, empty, read_notes
from support import typescript

from generators.versions import read_version

from .conftest import ROOT, call

DATED = "# Changelog\n\n## [1.2.0] - 2027-03-01\n\n- Added.\n\n## [1.1.0] - 2027-01-01\n\n- Old.\n"


def test_the_notes_are_the_section_of_the_version():
    assert read_notes(DATED, "1.2.0", draft=False) == "- Added."
    undated = DATED.replace("2027-03-01", "Unreleased")
    assert read_notes(undated, "1.2.0", draft=True) == "- Added."


@pytest.mark.parametrize(
    ("changelog", "problem"),
    [
        (DATED.replace("1.2.0", "1.3.0"), "CHANGELOG.md begins with 1.3.0, and pyproject.toml"),
        ("# Changelog\n", "CHANGELOG.md has no section, and pyproject.toml has 1.2.0"),
        (DATED.replace("2027-03-01", "Unreleased"), r"has no date for 1.2.0 \(Unreleased\)"),
        (DATED.replace("- Added.", ""), "CHANGELOG.md says nothing about 1.2.0"),
    ],
)
def test_a_changelog_that_is_not_ready_is_refused(changelog, problem):
    with pytest.raises(Refused, match=problem):
        read_notes(changelog, "1.2.0", draft=False)


def test_uncommitted_files_and_other_tags_are_refused(tmp_path):
    check_tree("1.2.0", "", ["latest", "v1.2.0"])
    with pytest.raises(Refused, match=r"there are uncommitted changes.*\n M README.md"):
        check_tree("1.2.0", " M README.md", ["v1.2.0"])
    with pytest.raises(Refused, match=r"this commit has no tag v1\.2\.0"):
        check_tree("1.2.0", "", ["v1.1.0"])
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(Refused, match="holds files of something else"):
        empty(tmp_path)
    assert (tmp_path / "thesis.txt").exists()


@pytest.mark.thorough
@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this is no clone of the repository")
@pytest.mark.skipif(typescript.missing() is not None, reason=f"TypeScript: {typescript.missing()}")
def test_a_draft_has_all_files_and_their_checksums(outside):
    typescript.build()
    dist, version = outside / "dist", read_version(ROOT)
    words = (sys.executable, "deploy/release.py", "--draft", "--dist", dist)
    first = call(*words, PYTHONPATH="docs")
    made = {path.name: path for path in dist.iterdir()}
    wheels = {name for name in made if name.endswith(f"-{version}-py3-none-any.whl")}
    assert len(wheels) == 3
    others = ("source.tar.gz", "python.cdx.json", "npm.cdx.json")
    assert set(made) >= wheels | {f"headway-{version}-{end}" for end in others}
    assert set(made) >= {f"headway-worker-{version}.tgz", NOTES, CHECKSUMS}
    lines = made[CHECKSUMS].read_text().splitlines()
    assert first.splitlines() == lines
    assert len(lines) == len(made) - 1
    for checksum, name in map(str.split, lines):
        assert hashlib.sha256(made[name].read_bytes()).hexdigest() == checksum
    for end, needed in (("python", {"asyncpg", "nats-py"}), ("npm", {"transport-node"})):
        listed = json.loads(made[f"headway-{version}-{end}.cdx.json"].read_text())["components"]
        assert needed <= {component["name"].rpartition("/")[2] for component in listed}
    with tarfile.open(made[f"headway-{version}-source.tar.gz"]) as archive:
        assert f"headway-{version}/pyproject.toml" in archive.getnames()
    again = call(*words, PYTHONPATH="docs")
    assert [line for line in again.splitlines() if "whl" in line] == [
        line for line in lines if "whl" in line
    ]
