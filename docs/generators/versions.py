"""Copies for each distribution: the version, which `pyproject.toml` states, and the licence."""

import re
import tomllib
from pathlib import Path

SOURCE = Path("pyproject.toml")
_NPM = Path("libs", "worker-typescript")
LICENSES = [folder / "LICENSE" for folder in (Path("services"), Path("libs", "testing"), _NPM)]
# The text before the version, as a pattern, for each file that contains it.
COPIES = {
    SOURCE: r'"headway-(?:server|testing)(?:\[embedded\])?==',
    Path("services", "pyproject.toml"): r'(?:^version = "|"headway==)',
    Path("libs", "testing", "pyproject.toml"): r'(?:^version = "|"headway-server\[embedded\]==)',
    _NPM / "package.json": r'^  "version": "',
    _NPM / "package-lock.json": r'"name": "headway-worker",\n +"version": "',
    _NPM / "src" / "version.ts": r'VERSION = "',
    Path("deploy", "compose.yaml"): r"image: headway(?:-worker-typescript)?:",
    Path("deploy", "k8s", "base", "kustomization.yaml"): r"newTag: ",
    Path("deploy", "k8s", "overlays", "dev", "worker-typescript.yaml"): r"image: headway[\w-]*:",
    Path("docs", "deploy.md"): r"-t headway(?:-worker-typescript)?:",
}
_VERSION = r"\d+\.\d+\.\d+(?:[\w.+-]*\w)?"


def read_version(root: Path) -> str:
    """Read the version of the project."""
    project = tomllib.loads((root / SOURCE).read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def files(root: Path) -> dict[Path, str]:
    """Write the version into every file that contains it, and copy the licence."""
    version = read_version(root)
    made = dict.fromkeys(LICENSES, (root / "LICENSE").read_text(encoding="utf-8"))
    for path, before in COPIES.items():
        text = (root / path).read_text(encoding="utf-8")
        pattern = f"({before}){_VERSION}"
        made[path], found = re.subn(pattern, rf"\g<1>{version}", text, flags=re.MULTILINE)
        if not found:
            raise LookupError(f"{path} contains no version: expected it after {before!r}")
    return made
