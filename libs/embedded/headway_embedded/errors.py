"""The one exception of this package, and what turns a folder's troubles into it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class EmbeddedError(Exception):
    """A server cannot be run here; the message names the thing and the remedy."""


@contextmanager
def naming_folder(folder: Path) -> Iterator[None]:
    """Tell a fault of the file system as a fault of the data folder."""
    try:
        yield
    except OSError as error:
        where = f" at {error.filename}" if error.filename else ""
        raise EmbeddedError(
            f"data folder {folder} cannot be used ({error.strerror or error}{where}); "
            "make it writable or choose another folder with --data"
        ) from error
