"""The reference of all commands, from the definitions that print their help."""

import inspect
from collections.abc import Iterator
from pathlib import Path

import click
from headway_cli.commands import _SECTIONS, headway


def text(_root: Path) -> str:
    """Describe each command in the sections of `headway --help`."""
    root = click.Context(headway, info_name="headway")
    parts = []
    for title, section in _SECTIONS.items():
        parts.append(f"## {title}")
        for name in section:
            if command := headway.get_command(root, name):
                parts += _described(command, click.Context(command, root, info_name=name), 3)
    return "\n\n".join(parts)


def _described(command: click.Command, context: click.Context, level: int) -> Iterator[str]:
    pieces = " ".join(command.collect_usage_pieces(context))
    yield f"{'#' * level} `{context.command_path}`"
    yield _paragraphs(command.help or "")
    yield f"```text\n{context.command_path} {pieces}\n```"
    options = [option for option in command.params if isinstance(option, click.Option)]
    rows = [_row(option, context) for option in options if not option.hidden]
    if rows:
        yield "\n".join(["| option | meaning |", "|---|---|", *rows])
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            part = command.get_command(context, name)
            if part is not None and not part.hidden:
                inner = click.Context(part, context, info_name=name)
                yield from _described(part, inner, level + 1)


def _row(option: click.Option, context: click.Context) -> str:
    record = option.get_help_record(context)
    names, meaning = record or (", ".join(option.opts), "")
    return f"| {_code(names)} | {_escaped(meaning)} |"


def _code(names: str) -> str:
    return "`" + names.replace("|", "\\|") + "`"


def _escaped(words: str) -> str:
    return " ".join(words.replace("|", "\\|").replace("<", "&lt;").split())


def _paragraphs(words: str) -> str:
    """Return a help text as Markdown; a paragraph that click must not wrap is code."""
    found = []
    for paragraph in inspect.cleandoc(words.replace("\f", "")).split("\n\n"):
        if paragraph.startswith("\b\n"):
            found.append(f"```text\n{paragraph[2:]}\n```")
        else:
            found.append(paragraph.replace("<", "&lt;").replace("*", "\\*"))
    return "\n\n".join(found)
