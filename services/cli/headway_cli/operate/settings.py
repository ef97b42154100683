"""`headway settings`: what holds here and now, and who says so."""

import json
import os
from collections.abc import Iterator

import click
import msgspec
from headway_service_kit.settings import InvalidSettings
from headway_service_kit.settings_text import Effective, in_words, look
from msgspec.structs import replace

from headway_cli.reference.known_settings import SECTIONS, Section
from headway_cli.serve.settings import check
from headway_cli.terminal import options
from headway_cli.terminal.connect import json_option, print_lines
from headway_cli.terminal.errors import BAD_INPUT
from headway_cli.terminal.tables import table


@click.command()
@click.argument("part", type=click.Choice([section.name for section in SECTIONS]), required=False)
@click.option("--changed", is_flag=True, help="Only those that differ from their default.")
@json_option
@options.debug_option
def settings(part: str | None, changed: bool, as_json: bool) -> int:
    """Show every setting that holds here, and who says so.

    Name a PART to see its settings alone. Passwords are masked. Settings that cannot be read are
    told with the reason, and make the exit code 2.
    """
    found = {
        section: settings_of(section, changed=changed)
        for section in SECTIONS
        if part in (None, section.name)
    }
    if as_json:
        shown = [
            {"part": section.name, **msgspec.to_builtins(one)}
            for section, effective in found.items()
            for one in effective
        ]
        click.echo(json.dumps(shown, indent=2))
    else:
        print_lines(list(_lines(found)))
    unreadable = any(is_wrong(one) for effective in found.values() for one in effective)
    return BAD_INPUT if unreadable else 0


def settings_of(section: Section, *, changed: bool = False) -> list[Effective]:
    """The settings of a section as they hold here, each with its problem if it has one."""
    told = section.but.__struct_fields__ if section.but is not None else ()
    fields = section.struct.__struct_fields__
    every = zip(fields, look(section.struct, os.environ), strict=True)
    shapes = _problems_of_shape(section)
    found = [
        replace(one, problem=one.problem or shapes.get(one.variable))
        for name, one in every
        if name not in told
    ]
    return [one for one in found if not changed or one.source not in (None, "default")]


def _problems_of_shape(section: Section) -> dict[str, str]:
    """What the services would refuse at their start, by the variable."""
    try:
        check([section.struct], {}, os.environ)
    except InvalidSettings as error:
        told = (line.partition(": ") for line in str(error).splitlines())
        return {variable: problem for variable, _, problem in told}
    return {}


def is_wrong(one: Effective) -> bool:
    """Whether a setting was given and cannot be read."""
    return one.problem is not None and one.problem != "not set"


def _lines(found: dict[Section, list[Effective]]) -> Iterator[str]:
    for section, effective in found.items():
        if not effective:
            continue
        yield section.title
        rows = [(one.variable, _shown(one), one.source) for one in effective]
        yield from (f"  {line}" for line in table(("setting", "value", "from"), rows))
        yield ""


def _shown(one: Effective) -> str:
    if one.problem is not None:
        return one.problem if one.source is None else f"{one.value}: {one.problem}"
    return in_words(one.value)
