"""Plain English: a short list of words that code, Markdown pages and templates avoid.

A line that needs a listed word says so with the comment `# language: allow`, in Markdown and HTML
with `<!-- language: allow -->`.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

AREAS = ("libs", "services", "proto-schemas", "tests", "docs", "examples", "deploy")

ALLOW = "# language: allow"
ALLOW_IN_PAGES = "<!-- language: allow -->"
LOOP_VARIABLES = {"one"}
IDENTIFIERS = re.compile(r"(^|_)(told|asked|telling|tellings)(_|$)", re.IGNORECASE)
FIRST_WORDS = re.compile(r"(What|Who|Whom|Whose|Had|Those)\b")
ANYWHERE = re.compile(r"\b(nobody|somebody|whoever)\b", re.IGNORECASE)
IN_PAGES = re.compile(
    r"\b(nobody|somebody|everybody|whoever|told|gives? back|put aside|taken up|takes? up(?! to)"
    r"|for want of|make good)\b",
    re.IGNORECASE,
)
SUBJECTS = re.compile(r"(?:^|[.:] |\| |\*\* |>)((?:What|Who|Whom|Whose|Those)\b)(?![^.|<]*\?)")
# Not prose: fenced and indented code, code spans, template expressions, tags and comments.
CODE = re.compile(
    r"^```.*?^```|^ {4,}[^\s<].*?$|`[^`\n]+`|{[{%#].*?[}%#]}", re.DOTALL | re.MULTILINE
)

Finding = tuple[int, str]


def loop_variables(nodes: list[ast.AST]) -> Iterator[Finding]:
    """Find loops and comprehensions whose variable is not a noun."""
    for node in nodes:
        if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            for name in ast.walk(node.target):
                if isinstance(name, ast.Name) and name.id in LOOP_VARIABLES:
                    yield name.lineno, f"loop variable '{name.id}': use the noun"


def identifiers(nodes: list[ast.AST]) -> Iterator[Finding]:
    """Find names of variables, parameters, functions and classes that tell a manner."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", node.name)
            # A test's name is a sentence, which may use any word.
            found = not name.startswith(("test_", "Test")) and IDENTIFIERS.search(name)
        elif isinstance(node, ast.arg):
            found = IDENTIFIERS.search(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found = IDENTIFIERS.search(node.id)
        else:
            continue
        if found:
            yield node.lineno, f"identifier with '{found[2]}': name the data or the action"


def docstrings(nodes: list[ast.AST]) -> Iterator[Finding]:
    """Find docstrings that begin with a relative clause or do not name the subject."""
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node) or ""
            if first := FIRST_WORDS.match(text):
                yield node.body[0].lineno, f"docstring that begins with '{first[0]}'"
            if vague := ANYWHERE.search(text):
                yield node.body[0].lineno, f"docstring with '{vague[0]}': name the subject"


def comments(text: str) -> Iterator[Finding]:
    """Find comments that begin with a relative clause or do not name the subject."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            first = FIRST_WORDS.match(token.string.lstrip("# "))
            # A comment may go on from the line before, and then begin with any word.
            if first and not continues(text, token.start[0]):
                yield token.start[0], f"comment that begins with '{first[0]}'"
            if vague := ANYWHERE.search(token.string):
                yield token.start[0], f"comment with '{vague[0]}': name the subject"


def continues(text: str, line: int) -> bool:
    """Return whether a comment's line continues a comment that has not ended its sentence."""
    before = text.splitlines()[line - 2].strip() if line > 1 else ""
    return before.startswith("#") and not before.endswith((".", ":"))


def problems(text: str) -> list[str]:
    """Return the problems of a program, each with its line."""
    nodes = list(ast.walk(ast.parse(text)))
    lines = text.splitlines()
    found = [*loop_variables(nodes), *identifiers(nodes), *docstrings(nodes), *comments(text)]
    return [f"{line}: {problem}" for line, problem in sorted(found) if ALLOW not in lines[line - 1]]


def without_code(text: str) -> str:
    """Blank everything that is not prose, and keep the lines."""
    return CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), text)


def problems_of_page(text: str) -> list[str]:
    """Return the problems of a Markdown page or a template, each with its line."""
    lines = zip(text.splitlines(), without_code(text).splitlines(), strict=True)
    return [
        f"{number}: {found[1]!r}: name the subject and the action"
        for number, (line, prose) in enumerate(lines, 1)
        if ALLOW_IN_PAGES not in line
        for pattern in (IN_PAGES, SUBJECTS)
        if (found := pattern.search(prose))
    ]


def pages() -> list[Path]:
    """Return the Markdown pages and the console's templates."""
    named = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    folders = ("docs", "libs", "services", "deploy", "proto-schemas")
    found = [page for folder in folders for page in (ROOT / folder).rglob("*.md")]
    found += (ROOT / "services/console").rglob("*.html")
    return named + sorted(page for page in found if "node_modules" not in page.parts)


def test_the_pages_are_in_plain_english():
    found = {page: problems_of_page(page.read_text()) for page in pages()}
    assert len(found) > len(AREAS)
    assert {str(page.relative_to(ROOT)): lines for page, lines in found.items() if lines} == {}


def test_the_code_is_in_plain_english():
    paths = [
        path
        for area in AREAS
        for path in sorted((ROOT / area).rglob("*.py"))
        if "node_modules" not in path.parts
    ]
    assert len(paths) > len(AREAS)
    found = {path: problems(path.read_text()) for path in paths}
    assert {str(path.relative_to(ROOT)): lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("for one in runs: ...", 1),
        ("[one for one in runs]", 1),
        ("for one in runs: ...  # language: allow", 0),
        ("for run in runs: ...", 0),
        ("def tell(told): ...", 1),
        ("class Told: ...", 1),
        ("class JobTold: ...", 1),
        ("asked_at = 1", 1),
        ("masked = 1", 0),
        ("def test_who_is_told(): ...", 0),
        ('"""Whose lease it is."""', 1),
        ('"""Whether it holds."""', 0),
        ('def f():\n    """What is owed."""', 1),
        ("x = 1  # Those that wait", 1),
        ("x = 1  # Somebody else has it", 1),
        ('"""Nobody waits."""', 1),
        ('x = "nobody"', 0),
        ("# It is about\n# What continues", 0),
    ],
)
def test_the_check_itself_bites(text, count):
    assert len(problems(text)) == count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("The worker was told to stop.", 1),
        ("It waits. What is owed runs later.", 1),
        ("| a | Those that wait |", 1),
        ("<p>Nobody answers.</p>", 1),
        ("Nobody answers. <!-- language: allow -->", 0),
        ("**Why?** Who changed it?", 0),
        ("Headway shows what changed.", 0),
        ("`told` is a column.", 0),
        ("```\nnobody\n```", 0),
        ("```\nx\n```\nnobody", 1),
        ("    headway told", 0),
        ("{{ told }} {# nobody #}", 0),
    ],
)
def test_the_check_of_pages_bites(text, count):
    assert len(problems_of_page(text)) == count
