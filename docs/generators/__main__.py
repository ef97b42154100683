"""Write all generated files, or check that they are up to date.

python -m generators            write them
python -m generators --check    fail if one is out of date
"""

import sys
from pathlib import Path

from generators import (
    alert_rules,
    contract_schemas,
    definitions_schema,
    diagrams,
    metrics_page,
    openapi,
    settings_page,
    versions,
)

ROOT = Path(__file__).parents[2]
_MODULES = (
    alert_rules,
    contract_schemas,
    definitions_schema,
    diagrams,
    metrics_page,
    openapi,
    settings_page,
    versions,
)


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Write or check the files."""
    wanted = {root / path: text for module in _MODULES for path, text in module.files(root).items()}
    superfluous = {*(root / contract_schemas.FOLDER).glob("*.json")} - wanted.keys()
    stale = [path for path, text in wanted.items() if _content(path) != text]
    if "--check" in arguments:
        for path in sorted([*stale, *superfluous]):
            name = path.relative_to(root)
            sys.stderr.write(f"{name} is out of date: run './justw generate'\n")
        return 1 if stale or superfluous else 0
    for path in superfluous:
        path.unlink()
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted[path], encoding="utf-8")
    return 0


def _content(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
