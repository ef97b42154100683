"""`headway settings`: the settings in effect, and the source of each."""

import json
from collections.abc import Iterator

import click
import msgspec
from headway_service_kit.settings_text import Effective, in_words

from headway_cli.serve.known_settings import SECTIONS, Section, is_wrong, settings_of
from headway_cli.terminal import options
from headway_cli.terminal.output import json_option, print_lines, table

BAD_SETTINGS = 2


@click.command()
@click.argument("part", type=click.Choice([section.name for section in SECTIONS]), required=False)
@click.option("--changed", is_flag=True, help="Only those that differ from their default.")
@json_option
@options.debug_option
def settings(part: str | None, changed: bool, as_json: bool) -> int:
    """Show the settings in effect and their sources.

    Name a PART to see only its settings. Passwords are masked. The exit code is 2 if a setting
    cannot be read.
    """
    found = {
        section: [
            setting
            for setting in settings_of(section)
            if not changed or setting.source not in (None, "default")
        ]
        for section in SECTIONS
        if part in (None, section.name)
    }
    if as_json:
        shown = [
            {"part": section.name, **msgspec.to_builtins(setting)}
            for section, effective in found.items()
            for setting in effective
        ]
        click.echo(json.dumps(shown, indent=2))
    else:
        print_lines(_lines(found))
    unreadable = any(is_wrong(setting) for effective in found.values() for setting in effective)
    return BAD_SETTINGS if unreadable else 0


def _lines(found: dict[Section, list[Effective]]) -> Iterator[str]:
    for section, effective in found.items():
        if not effective:
            continue
        yield section.title
        rows = [(setting.variable, _value(setting), setting.source) for setting in effective]
        yield from (f"  {line}" for line in table(("setting", "value", "from"), rows))
        yield ""


def _value(setting: Effective) -> str:
    if setting.problem is None:
        return in_words(setting.value)
    if setting.source is None:
        return setting.problem
    return f"{setting.value}: {setting.problem}"
