"""Write generated files, or check that they are up to date."""

import sys
from collections.abc import Mapping
from pathlib import Path


def write_or_check(files: Mapping[Path, str], *, check: bool) -> int:
    """Write the files; with `check` only compare them. Returns the exit code."""
    if not check:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return 0
    stale = [
        path
        for path, text in files.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    for path in stale:
        sys.stderr.write(f"{path} is out of date: run './justw generate' and commit the result\n")
    return 1 if stale else 0


def read_arguments(arguments: list[str]) -> tuple[Path, bool]:
    """Read `PATH [--check]`."""
    return Path(next(item for item in arguments if item != "--check")), "--check" in arguments
