"""Writes the page of all settings, or checks that it is up to date.

python -m headway_cli.reference.settings_page PATH            write it
python -m headway_cli.reference.settings_page PATH --check    fail if it has drifted
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from headway_service_kit.settings_text import Described

from headway_cli.reference.known_settings import SECTIONS, described

_HEAD = """\
# Settings

*Written by `./justw generate` from the structs that hold the settings; do not edit.*

Every setting is an environment variable `HEADWAY_<NAME>`, read once at the start. The same name
with `_FILE` names a file that holds the value instead, which is how secrets are best given. A flag
of a command wins over both, and an empty variable is as good as none. A service that cannot read a
setting does not start, and tells all problems at once.

`headway settings` shows what holds here and now, and who says so: the default, the environment or a
file. Passwords in URLs are masked. `--json` is for scripts.

Traces are exported as the variables of OpenTelemetry say ([traces](tracing.md)).
"""

_NO_SETTINGS = (
    (
        "largest input, largest output",
        "256 KiB each",
        "a promise of the protocol: every worker in every language counts on it",
    ),
    ("priority", "0 to 31", "stored and checked in the database"),
    (
        "boost of dependents",
        "16",
        "part of what a priority means, and stored with the work that it makes",
    ),
    (
        "claim of a lease",
        "within 20 s",
        "must stay below `HEADWAY_STREAM_ACK_WAIT_SECONDS`, whose least value sees to it",
    ),
    (
        "limits of groups and jobs",
        "none",
        "stated in the app, and changed by operators while it runs ([capacity](capacity.md))",
    ),
)


def page() -> str:
    """The whole page."""
    parts = [_HEAD]
    for section in SECTIONS:
        rows = "\n".join(_rows(described(section)))
        table = f"| variable | default | values | what it does |\n|---|---|---|---|\n{rows}\n"
        parts.append(f"## {section.title}\n\n{section.about}\n\n{table}")
    fixed = "\n".join(f"| {what} | {value} | {why} |" for what, value, why in _NO_SETTINGS)
    table = f"| what | value | why |\n|---|---|---|\n{fixed}\n"
    return "\n".join([*parts, f"## What is no setting, and why\n\n{table}"])


def _rows(settings: list[Described]) -> Iterator[str]:
    for one in settings:
        plain = one.default in ("required", "none")
        default = one.default if plain else f"`{one.default}`"
        unit = f" {one.unit}" if one.unit and not plain else ""
        yield f"| `{one.variable}` | {default}{unit} | {one.values} | {one.description} |"


def main(arguments: list[str]) -> int:
    """Write or check."""
    path = Path(next(one for one in arguments if one != "--check"))
    if "--check" not in arguments:
        path.write_text(page(), encoding="utf-8")
        return 0
    if path.is_file() and path.read_text(encoding="utf-8") == page():
        return 0
    sys.stderr.write(f"{path} has drifted: run './justw generate' and commit the result\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
