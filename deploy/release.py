"""Make the files of a release in `dist`: `./justw release [--draft]`.

Wheels, the npm package, the source archive, the image if a container engine runs, a bill of
materials for each language, the notes of the version from the changelog, and checksums of all.
A draft may be made from uncommitted files, of a version without a date, and without Node.
"""

import argparse
import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path

from generators.__main__ import main as run_generators
from generators.versions import read_version

ROOT = Path(__file__).parents[1]
NPM_PACKAGE = ROOT / "libs" / "worker-typescript"
CHECKSUMS = "SHA256SUMS"
NOTES = "NOTES.md"

_ENGINES = ("docker", "podman")
_SECTION = re.compile(r"^## \[(?P<version>[^\]]+)\] - (?P<date>\S+)$", re.MULTILINE)


class Refused(Exception):
    """The project is not ready for a release; the message names the remedy."""


def read_notes(changelog: str, version: str, *, draft: bool) -> str:
    """Return the first section of the changelog, which must be that of the version."""
    first = _SECTION.search(changelog)
    if first is None or first["version"] != version:
        found = "has no section" if first is None else f"begins with {first['version']}"
        raise Refused(
            f"CHANGELOG.md {found}, and pyproject.toml has {version}: add a section "
            f"'## [{version}] - YYYY-MM-DD', or change the version and run './justw generate'"
        )
    following = _SECTION.search(changelog, first.end())
    notes = changelog[first.end() : following and following.start()].strip()
    if not notes:
        raise Refused(f"CHANGELOG.md says nothing about {version}: write what changed")
    if not draft:
        try:
            date.fromisoformat(first["date"])
        except ValueError:
            raise Refused(
                f"CHANGELOG.md has no date for {version} ({first['date']}): write YYYY-MM-DD"
            ) from None
    return notes


def check_tree(version: str, changes: str, tags: list[str]) -> None:
    """Refuse files that are not committed, and a commit whose tag names another version."""
    if changes:
        raise Refused(f"there are uncommitted changes: commit them, or use --draft\n{changes}")
    if f"v{version}" not in tags:
        raise Refused(f"this commit has no tag v{version}: run 'git tag v{version}'")


def call(*words: str | Path, folder: Path = ROOT) -> str:
    """Run a program and return its output."""
    done = subprocess.run(
        [str(word) for word in words], cwd=folder, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise Refused(f"{words[0]} failed with code {done.returncode}: see its message above")
    return done.stdout.strip()


def build_python(version: str, dist: Path) -> None:
    """Build the wheels, archive the sources, and list what the wheels need."""
    call("uv", "build", "--quiet", "--wheel", "--all-packages", "--out-dir", dist)
    (dist / ".gitignore").unlink(missing_ok=True)
    archive = dist / f"headway-{version}-source.tar.gz"
    call("git", "archive", f"--prefix=headway-{version}/", "--output", archive, "HEAD")
    locked = ("--frozen", "--all-packages", "--all-extras", "--no-dev")
    listing = ("--format", "cyclonedx1.5", "--preview-features", "sbom-export")
    sbom = dist / f"headway-{version}-python.cdx.json"
    call("uv", "export", "--quiet", *locked, *listing, "--output-file", sbom)


def build_npm(version: str, dist: Path, *, draft: bool) -> None:
    """Compile and pack the TypeScript package, and list what it needs."""
    if not draft:
        # Files of removed modules may be left in it.
        shutil.rmtree(NPM_PACKAGE / "dist", ignore_errors=True)
    call(NPM_PACKAGE / "build")
    pack = ("npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", dist)
    call(*pack, folder=NPM_PACKAGE)
    sbom = call("npm", "sbom", "--sbom-format", "cyclonedx", "--omit", "dev", folder=NPM_PACKAGE)
    (dist / f"headway-{version}-npm.cdx.json").write_text(f"{sbom}\n", encoding="utf-8")


def find_engine() -> str | None:
    """Return the container engine that runs on this machine, if there is one."""
    for engine in filter(shutil.which, _ENGINES):
        if not subprocess.run([engine, "info"], capture_output=True, check=False).returncode:
            return engine
    return None


def build_image(engine: str, version: str, dist: Path) -> None:
    """Build the image and save it as a compressed archive."""
    image = f"headway:{version}"
    call(engine, "build", "--file", "deploy/docker/Dockerfile", "--tag", image, ".")
    saved = dist / f"headway-{version}-image.tar"
    call(engine, "save", "--output", saved, image)
    with saved.open("rb") as source, gzip.GzipFile(f"{saved}.gz", "wb", mtime=0) as target:
        shutil.copyfileobj(source, target)
    saved.unlink()


def empty(dist: Path) -> None:
    """Empty the folder of the last release, and no other."""
    if dist.is_dir() and any(dist.iterdir()) and not (dist / CHECKSUMS).exists():
        raise Refused(f"{dist} holds files of something else: remove it, or name another --dist")
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir(parents=True)
    (dist / CHECKSUMS).touch()


def write_checksums(dist: Path) -> list[str]:
    """Write the checksums of all files as `sha256sum --check` reads them; return the lines."""
    files = sorted(path for path in dist.iterdir() if path.name != CHECKSUMS)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}" for path in files]
    (dist / CHECKSUMS).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return lines


def release(dist: Path, *, draft: bool) -> list[str]:
    """Check the project and make all files; return the lines of their checksums."""
    version = read_version(ROOT)
    notes = read_notes((ROOT / "CHANGELOG.md").read_text("utf-8"), version, draft=draft)
    if not draft:
        tags = call("git", "tag", "--points-at", "HEAD").splitlines()
        check_tree(version, call("git", "status", "--porcelain"), tags)
    call("uv", "lock", "--quiet", "--check")
    if run_generators(["--check"]):
        raise Refused("generated files are out of date: run './justw generate'")
    # The same commit makes the same wheels.
    os.environ["SOURCE_DATE_EPOCH"] = call("git", "log", "-1", "--format=%ct")
    empty(dist)
    (dist / NOTES).write_text(f"{notes}\n", encoding="utf-8")
    build_python(version, dist)
    if draft and shutil.which("npm") is None:
        sys.stderr.write("there is no npm: the draft has no npm package\n")
    else:
        build_npm(version, dist, draft=draft)
    engine = find_engine()
    if engine is None:
        sys.stderr.write("no container engine runs here: there is no image\n")
    else:
        build_image(engine, version, dist)
    return write_checksums(dist)


def main() -> int:
    """Make a release; print its files."""
    parser = argparse.ArgumentParser(description="Make the files of a release.")
    parser.add_argument("--draft", action="store_true", help="without a tag, a date and Node")
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="the folder to replace")
    arguments = parser.parse_args()
    try:
        lines = release(arguments.dist.absolute(), draft=arguments.draft)
    except Refused as error:
        sys.stderr.write(f"release: {error}\n")
        return 1
    sys.stdout.write("\n".join([*lines, ""]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
