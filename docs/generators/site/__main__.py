"""Stage the pages and build the site into `.site/html`."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from generators.site.pages import MERMAID, stage

ROOT = Path(__file__).parents[3]
SITE = ROOT / ".site"
_LOADED = re.compile(r"<(?:script|link|img|iframe)[^>]*?\b(?:src|href)=[\"']?(https?://[^\"' >]+)")


def main() -> int:
    """Build the site; return the exit code."""
    shutil.rmtree(SITE / "pages", ignore_errors=True)
    if problems := stage(ROOT, SITE / "pages"):
        sys.stderr.write("".join(f"{problem}\n" for problem in problems))
        return 1
    copy_mermaid(SITE / "pages" / MERMAID)
    build = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    done = subprocess.run(build, cwd=ROOT, check=False, capture_output=True)
    if done.returncode:
        sys.stderr.write(done.stderr.decode())
        return done.returncode
    if foreign := sorted({address for page in pages_of(SITE) for address in loaded(page)}):
        sys.stderr.write(f"pages load from elsewhere: {', '.join(foreign)}\n")
        return 1
    sys.stderr.write("built: python -m http.server -d .site/html\n")
    return 0


def pages_of(site: Path) -> Iterator[Path]:
    """Return the built pages."""
    return (site / "html").rglob("*.html")


def loaded(page: Path) -> list[str]:
    """Return the addresses on the network from which a browser would load parts of a page."""
    return _LOADED.findall(page.read_text("utf-8"))


def copy_mermaid(target: Path) -> None:
    """Copy mermaid.js from the installed wheel of mmdc, of which only this file is used."""
    found = find_spec("mmdc")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("mmdc is not installed: run './justw docs', which installs it")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(Path(found.submodule_search_locations[0], "assets", "mermaid.js"), target)


if __name__ == "__main__":
    sys.exit(main())
