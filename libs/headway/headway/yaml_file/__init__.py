"""Definitions in YAML, for teams whose workers are not Python.

    app: billing
    jobs:
      cleanup: {description: Vacuums stale rows., takes_input: false}
    manifests:
      nightly-cleanup:
        job: cleanup
        daily: {at: "03:15", days: weekdays, tz: Europe/Berlin}

A file is equivalent to an `App` in Python: `nodes` reads the text and checks it against `records`,
`parse` converts it to declarations with the functions that Python uses, and `assembly` checks
those. `schema` writes the JSON Schema for editors.
"""

from pathlib import Path

from headway.define.app import App
from headway.define.assembly import assemble
from headway.define.declarations import Declarations
from headway.define.definitions import Definitions, InvalidDefinitions
from headway.define.jobs import Job
from headway.yaml_file.nodes import FileReader
from headway.yaml_file.runtime_files import change_manifest as change_manifest
from headway.yaml_file.runtime_files import load_manifest as load_manifest
from headway.yaml_file.runtime_files import parse

_NO_BODIES = (
    "declares jobs without bodies, so no worker can run it: start the workers of those jobs, in "
    "any language, or give a Python app with jobs of the same names"
)
SUFFIXES = (".yaml", ".yml")


class YamlApp(App):
    """An app from a file: it has definitions, but no bodies."""

    def __init__(self, declared: Declarations, source: str) -> None:
        super().__init__(declared.owner, generation=declared.generation)
        self._declared = declared
        self._source = source

    @property
    def jobs(self) -> dict[str, Job]:
        """Raise: the bodies of its jobs are in other programs."""
        called = self._source or "the YAML"
        raise InvalidDefinitions([f"{called} {_NO_BODIES}"])


def load_yaml(path_or_text: str | Path) -> Definitions:
    """Read definitions from a file or from text, or raise with all problems at once."""
    return read_app(path_or_text).definitions()


def read_app(path_or_text: str | Path) -> YamlApp:
    """Read an app from a file or from text, or raise with all problems at once.

    A string is a path if it is one line that ends in .yaml or .yml.
    """
    text, source = _text_of(path_or_text)
    declared = parse(text, FileReader(source))
    assemble(declared)  # report all problems now
    return YamlApp(declared, source)


def _text_of(given: str | Path) -> tuple[str, str]:
    is_text = isinstance(given, str) and ("\n" in given or not given.endswith(SUFFIXES))
    if is_text:
        return str(given), ""
    try:
        # utf-8-sig, because some editors write a byte order mark.
        return Path(given).read_text(encoding="utf-8-sig"), str(given)
    except UnicodeDecodeError as error:
        raise InvalidDefinitions([f"{given}: it is not encoded in UTF-8: {error}"]) from error
    except OSError as error:
        raise InvalidDefinitions([f"{given}: it cannot be read: {error.strerror}"]) from error
