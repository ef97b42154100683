"""Every code block of the docs: programs run, files are valid, commands exist.

Blocks of SQL and on a connection run in `tests/integration/test_code_blocks.py`, tests under the
virtual clock in `tests/simulation/test_code_blocks.py`.
"""

import ast
import importlib
import json
import re
import shlex

import click
import pytest
from headway import App, load_yaml
from headway_cli.commands import headway
from support.code_blocks import (
    PAGES,
    ROOT,
    all_blocks,
    blocks_of,
    commands_in_prose,
    words_of,
)
from support.promql import Expression

from generators.alert_rules import ALERTS

# Programs of others; the pages show them with arguments that were tried by hand.
OTHERS = {
    "cp", "createdb", "docker", "eval", "export", "node", "npm", "pg_dump", "pg_restore", "pip", "psql", "pytest", "python3",
    "uv",
}  # fmt: skip
# Blocks that show text, not code; diagrams are drawn by the browser.
SHOWN = {"", "text", "mermaid"}
CHECKED_ELSEWHERE = {
    "sql": "tests/integration/test_code_blocks.py",
    "conf": "tests/e2e/test_permissions.py",
}
# Words for which the reader writes a value of their own.
PLACEHOLDERS = {
    **dict.fromkeys(("ID", "RUN", "WORK"), "0f0e7c1a-5b1f-4a8e-9c51-2d9d1c9f7e55"),
    "JSON": "{}",
    "SECONDS": "60",
    "0-31": "7",
}
HEAD = "app: example\njobs:\n  sync-customer: {}\n"
PROGRAMS = blocks_of("python")
ROUTES = json.loads(
    (ROOT / "services/console/headway_console/api/openapi.json").read_text("utf-8")
)["paths"]


def test_every_language_is_one_that_a_test_checks():
    known = {"python", "yaml", "json", "console", "indented", "promql", *SHOWN, *CHECKED_ELSEWHERE}
    strange = {block.name: block.language for block in all_blocks() if not block.reason}
    assert {name: found for name, found in strange.items() if found not in known} == {}
    assert len(all_blocks()) > 150
    assert all((ROOT / file).is_file() for file in CHECKED_ELSEWHERE.values())


def test_every_program_is_run_by_a_test():
    signs = ("app = App(", "connection.", "Client(", "headway_world", "run_servers(")
    assert [block.name for block in PROGRAMS if not any(sign in block.text for sign in signs)] == []


@pytest.mark.parametrize("block", PROGRAMS, ids=lambda block: block.name)
def test_a_program_compiles_and_its_imports_exist(block):
    tree = compile(
        block.text, block.name, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    )
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            module = importlib.import_module(node.module)
            assert not [name.name for name in node.names if not hasattr(module, name.name)]
        elif isinstance(node, ast.Import):
            for name in node.names:
                importlib.import_module(name.name)


@pytest.mark.parametrize(
    "block", [block for block in PROGRAMS if "App(" in block.text], ids=lambda block: block.name
)
def test_an_app_can_be_declared(block):
    names = {"__name__": "example"}
    exec(compile(block.text, block.name, "exec"), names)
    assert isinstance(names["app"], App)
    assert names["app"].definitions().jobs


@pytest.mark.parametrize("block", blocks_of("yaml"), ids=lambda block: block.name)
def test_a_file_of_definitions_is_valid(block):
    text = block.text if "app:" in block.text else HEAD + block.text
    assert load_yaml(text).manifests


@pytest.mark.parametrize("block", blocks_of("json"), ids=lambda block: block.name)
def test_json_is_json(block):
    json.loads(block.text)


def recipes() -> set[str]:
    found = re.findall(r"^([a-z][\w-]*)(?: \*\w+)?:", (ROOT / "justfile").read_text(), re.MULTILINE)
    return {"default", *found}


def headway_command(words: list[str]) -> tuple[click.Command, click.Context, list[str]]:
    """Return the command that some words name, and the rest of the words."""
    command, context = headway, click.Context(headway, info_name="headway")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        if found is None and command is not headway:
            break  # a group with a default command
        assert found is not None, f"there is no command {words[0]!r}"
        context = click.Context(found, context, info_name=words[0])
        command, words = found, words[1:]
    return command, context, words


def check_options(words: list[str]) -> None:
    """Fail unless the command and all of its options exist."""
    command, context, rest = headway_command(words)
    commands = [command]
    if isinstance(command, click.Group):
        names = command.list_commands(context) if command is not headway else []
        commands += [command.get_command(context, name) for name in names]
    known = {"--help", "-h"}
    for part in commands:
        known |= {name for option in part.params for name in (*option.opts, *option.secondary_opts)}
    given = {word.strip("[]").partition("=")[0] for word in rest if re.match(r"\[?--?[a-z]", word)}
    assert given <= known, f"{context.command_path} has no option {sorted(given - known)}"


def check_values(words: list[str]) -> None:
    """Fail unless the arguments and the values of options have the right number and type."""
    command, context, rest = headway_command(words)
    plain = [re.sub(r"^\[(?=-)|(?<=\w)\]$", "", word) for word in rest]
    rest = [PLACEHOLDERS.get(word, word) for word in plain]
    try:
        command.make_context(str(context.info_name), rest, parent=context.parent)
    except click.exceptions.Exit:
        pass  # --help and --version
    except click.UsageError as error:
        raise AssertionError(f"{' '.join(words)}: {error.format_message()}") from error


def check_command(line: str) -> None:
    """Fail unless a line of a terminal is a command that exists."""
    words = words_of(line)
    if "--" in words:
        words = words[words.index("--") + 1 :]
    program = words[0] if words else "export"
    if program == "headway":
        check_options(words[1:])
        check_values(words[1:])
    elif program == "./justw":
        assert len(words) == 1 or words[1] in recipes(), f"there is no recipe {words[1]!r}"
    elif program == "curl":
        check_route(line)
    elif program == "kubectl":
        paths = re.findall(r"deploy/\S+", line.replace("deployment/", ""))
        assert all((ROOT / path).is_dir() for path in paths)
    elif program.startswith("deploy/"):
        assert (ROOT / program).is_file()
    else:
        assert program in OTHERS, f"{program!r}: list it in OTHERS, or mark the block as not run"


def check_route(line: str) -> None:
    """Fail unless a call of curl goes to a route with that method."""
    words = shlex.split(line)
    [path] = re.findall(r"\$HEADWAY_URL(/[^?\s\"']*)", line)
    method = words[words.index("-X") + 1].lower() if "-X" in words else ""
    method = method or ("post" if "-d" in words else "get")
    found = [
        route
        for route, item in ROUTES.items()
        if method in item and re.fullmatch(re.sub(r"{\w+}", "[^/]+", route), path)
    ]
    assert found, f"no route for {method} {path}"


@pytest.mark.parametrize("block", blocks_of("console", "indented"), ids=lambda block: block.name)
def test_commands_exist_with_their_options(block):
    if not re.match(r"(\$ )?(headway  |permissions |Nats-|@)", block.text):
        for command in block.commands:
            check_command(command)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_the_text_exist_with_their_options(page):
    for command in commands_in_prose(page.read_text("utf-8")):
        check_options(words_of(command.replace("'", "").replace('"', ""))[1:])


@pytest.mark.parametrize("block", blocks_of("promql"), ids=lambda block: block.name)
def test_queries_of_dashboards_ask_for_metrics_that_exist(block):
    metrics = (ROOT / "docs" / "metrics.md").read_text("utf-8")
    for selected in Expression(block.text.strip()).selected:
        name = re.sub(r"_(bucket|sum|count)$", "", selected.metric)
        assert f"`{name}`" in metrics or selected.pattern, name


def test_every_alert_has_a_section():
    page = (ROOT / "docs" / "alerts.md").read_text("utf-8")
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == [alert.name for alert in ALERTS]


@pytest.mark.parametrize(
    "line",
    [
        "headway explan report",
        "headway trigger report --wiat",
        "./justw tset",
        "HEADWAY_URL=x headway dead-letters retry --al",
        "curl -X PUT $HEADWAY_URL/api/v1/manifest/x",
        "rm -rf /",
        "kubectl exec deployment/x -- headway doktor",
    ],
)
def test_the_checks_themselves_bite(line):
    with pytest.raises(AssertionError):
        check_command(line)
