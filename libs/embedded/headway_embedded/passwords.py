"""Generated passwords, and files that nobody but their owner can read."""

import os
import secrets
from pathlib import Path


def new_password() -> str:
    """Generate a password that needs no quoting in a URL."""
    return secrets.token_urlsafe(24)


def write_secret(path: Path, content: str) -> None:
    """Write a file that only its owner can read, replacing an older one."""
    # A new file, because an existing one would keep its mode.
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(content)
