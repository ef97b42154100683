"""Stages the pages of the repository for MkDocs, and follows their links."""

import ast
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from generators.site import commands, decisions, http_api, messages, python_api

# Material loads Mermaid from a content network unless a page brings it.
MERMAID = Path("assets", "mermaid.js")
# Pages outside of `docs` that the site contains although no page links to them.
_OTHERS = ("CONTRIBUTING.md", "CHANGELOG.md", "libs/testing/README.md", "libs/embedded/README.md")
_PARTS: dict[str, Callable[[Path], str]] = {
    "commands": commands.text,
    "decisions": decisions.text,
    "http": http_api.text,
    "messages": messages.text,
    "python": python_api.text,
}
_PART = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)
_LANGUAGES = {
    ".js": "js", ".json": "json", ".py": "python", ".sh": "bash", ".sql": "sql",
    ".toml": "toml", ".ts": "ts", ".yaml": "yaml",
}  # fmt: skip
# Files that a browser shows or stores, instead of a page with their text.
_AS_THEY_ARE = {".css", ".svg", ".png", ".json"}
_FENCED = re.compile(r"^(`{3,}).*?^\1$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")
# A fence with more than its language, as in `json heartbeat.request`.
_NAMED_FENCE = re.compile(r"^```(\w+) ([^\n]+)$", re.MULTILINE)


def stage(root: Path, target: Path) -> list[str]:
    """Write all pages below a folder; return the links that lead nowhere."""
    return Staging(root, target).run()


class Staging:
    """The pages that are written and those that are still to be."""

    def __init__(self, root: Path, target: Path) -> None:
        self._root, self._target = root, target
        pages = [*(root / "docs").rglob("*.md"), *(root / "docs" / "assets").glob("*.css")]
        self._waiting = [*(page.relative_to(root) for page in pages), *map(Path, _OTHERS)]
        self._known = set(self._waiting)
        self._problems: list[str] = []

    def run(self) -> list[str]:
        """Write every page, and then the pages and files that it links to."""
        while self._waiting:
            self._write(self._waiting.pop())
        return sorted(self._problems)

    def _write(self, source: Path) -> None:
        found, place = self._root / source, self._target / placed(source, self._root)
        place.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix in _AS_THEY_ARE:
            shutil.copyfile(found, place)
        elif source.suffix == ".md":
            text = found.read_text("utf-8")
            place.write_text(self._page(source, text), encoding="utf-8")
        else:
            text = folder_page(found, source) if found.is_dir() else source_page(found, source)
            place.write_text(text, encoding="utf-8")

    def _page(self, source: Path, text: str) -> str:
        """Return a page with its generated parts and with links as they are in the site."""
        written = _PART.sub(lambda part: _PARTS[part[1]](self._root), text)
        written, end = _NAMED_FENCE.sub(r'```\1 title="\2"', written), 0
        pieces = []
        for code in [*_FENCED.finditer(written), None]:
            prose = written[end : code.start() if code else None]
            pieces.append(_LINK.sub(lambda link: self._link(source, link[1]), prose))
            if code:
                pieces.append(code[0])
                end = code.end()
        if "```mermaid" in written:
            here = placed(source, self._root).parent
            pieces.append(f'\n<script src="{os.path.relpath(MERMAID, here)}"></script>\n')
        return "".join(pieces)

    def _link(self, source: Path, link: str) -> str:
        """Return a link of a page as it is in the site, and queue its target."""
        path, sign, anchor = link.partition("#")
        if not path or re.match(r"[a-z]+:", path):
            return link
        target = Path(os.path.normpath(source.parent / path))
        if (self._root / target / "README.md").is_file():
            target /= "README.md"
        if not (self._root / target).exists():
            self._problems.append(f"{source}: the link to {link} leads nowhere")
            return link
        if target not in self._known:
            self._known.add(target)
            self._waiting.append(target)
        here = placed(source, self._root).parent
        leads = PurePosixPath(os.path.relpath(placed(target, self._root), here))
        return f"{leads}{sign}{anchor}"


def placed(source: Path, root: Path) -> Path:
    """Return the place of a file in the site: `docs` is its root, all else is in `source`."""
    # MkDocs leaves out hidden files.
    shown = Path("source", *(part.lstrip(".") for part in source.parts))
    place = source.relative_to("docs") if source.is_relative_to("docs") else shown
    if source.suffix == ".md" or source.suffix in _AS_THEY_ARE:
        return place
    return place / "index.md" if (root / source).is_dir() else place.with_name(place.name + ".md")


def source_page(found: Path, source: Path) -> str:
    """Return a page with the text of a file."""
    text = found.read_text("utf-8").rstrip("\n")
    fence = "`" * max(3, *(len(run) + 1 for run in [*re.findall("`+", text), ""]))
    language = _LANGUAGES.get(source.suffix, "")
    return f"# {source.name}\n\n`{source}`\n\n{fence}{language}\n{text}\n{fence}\n"


def folder_page(found: Path, source: Path) -> str:
    """Return a page about a folder: its package's docstring and its files."""
    package = found / "__init__.py"
    about = ast.get_docstring(ast.parse(package.read_text("utf-8"))) if package.is_file() else None
    names = sorted(path.name for path in found.iterdir() if not path.name.startswith(("_", ".")))
    text = f"{about}\n\n" if about else ""
    files = "\n".join(f"- `{name}`" for name in names)
    return f"# {source.name}\n\n`{source}`\n\n{text}{files}\n"
