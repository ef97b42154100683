"""The code blocks of the docs, and the commands in them.

A block that no test can run says why before it: `<!-- not run: REASON -->`.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "services").glob("*/README.md")),
    *sorted((ROOT / "libs").glob("*/README.md")),
    ROOT / "deploy" / "README.md",
    ROOT / "proto-schemas" / "PROTOCOL.md",
]

_FENCE = re.compile(r"^( *)```(\w*)(.*)$")
_MARK = re.compile(r"^ *<!-- not run: (.+) -->$")
_COMMAND_IN_PROSE = re.compile(r"(?<!`)`((?:uv run )?headway [a-z][a-z-]*[^`]*)`(?!`)")
# Everything behind one of these belongs to the shell or to another command.
_END = {"|", "&&", ">", ">>", ";"}


@dataclass(frozen=True)
class Block:
    """One block of code; the language of an indented one is `indented`."""

    page: Path
    line: int
    language: str
    text: str
    reason: str = ""

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def commands(self) -> list[str]:
        """The commands of a block of a terminal, without their output."""
        lines = self.text.replace("\\\n", " ").splitlines()
        typed = [line[2:] for line in lines if line.startswith("$ ")]
        return typed or ([] if self.language == "console" else [line for line in lines if line])


def blocks_in(page: Path) -> Iterator[Block]:
    """Find the fenced blocks of a page, and the indented ones that stand behind an empty line."""
    lines = page.read_text("utf-8").splitlines()
    number = 0
    while number < len(lines):
        fence = _FENCE.match(lines[number])
        before = next((line for line in reversed(lines[:number]) if line), "")
        mark = _MARK.match(before)
        reason = mark[1] if mark else ""
        first = number + 1
        if fence:
            end = next(i for i in range(first, len(lines)) if lines[i].strip() == "```")
            body = [line.removeprefix(fence[1]) for line in lines[first:end]]
            yield Block(page, first, fence[2], "\n".join(body) + "\n", reason)
            number = end
        elif (
            lines[number].startswith("    ")
            and not lines[number - 1]
            and not _MARK.match(lines[number])
        ):
            end = number
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end]):
                end += 1
            indent = len(lines[number]) - len(lines[number].lstrip())
            body = "\n".join(line[indent:] for line in lines[number:end])
            yield Block(page, first, "indented", body, reason)
            number = end - 1
        number += 1


@cache
def all_blocks() -> tuple[Block, ...]:
    """Return the blocks of all pages."""
    return tuple(block for page in PAGES for block in blocks_in(page))


def blocks_of(*languages: str) -> list[Block]:
    """Return the blocks that a test can run, in some languages."""
    return [block for block in all_blocks() if block.language in languages and not block.reason]


def commands_in_prose(text: str) -> list[str]:
    """Return the commands of Headway that a page names between code."""
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    return [" ".join(command.split()) for command in _COMMAND_IN_PROSE.findall(prose)]


def words_of(command: str) -> list[str]:
    """Split a command as a shell does, up to its first operator and without variables before it."""
    inner = re.search(r"\$\((headway [^)]*)\)", command)
    plain = inner[1] if inner else re.sub(r"\$\([^)]*\)", "x", command)
    shell = shlex.shlex(plain, posix=True, punctuation_chars="|&;>")
    shell.whitespace_split = True
    words = []
    for word in shell:
        if word in _END:
            break
        words.append(word)
    while words and re.match(r"[A-Z_]+=", words[0]):
        words.pop(0)
    return words[2:] if words[:2] == ["uv", "run"] else words
