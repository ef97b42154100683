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
those. `load_manifest` and `change_manifest` read single manifests that are made at run time.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from headway_decisions.timing.cadence import Manual
from msgspec import structs

from headway.define.app import App
from headway.define.assembly import assemble, without_application
from headway.define.declarations import Declarations
from headway.define.defaults import BUILT_IN, Defaults
from headway.define.definitions import (
    API_OWNER,
    Batch,
    Definitions,
    InvalidDefinitions,
    ManifestDefinition,
)
from headway.define.jobs import Job
from headway.define.options import FIELDS
from headway.yaml_file import nodes
from headway.yaml_file.nodes import FileReader
from headway.yaml_file.parse import FILTERS, read_file
from headway.yaml_file.records import CADENCES

SUFFIXES = (".yaml", ".yml")

# Keys of a file whose field in a definition may have another name.
_FIELDS = {**FIELDS, "jitter": "jitter_seconds"}
_OF_TIMING = (*CADENCES, "depends_on", "dormant", *FILTERS, "exclude")


class YamlApp(App):
    """An app from a file: it has definitions, but no bodies."""

    def __init__(self, declared: Declarations, source: str) -> None:
        super().__init__(declared.owner, generation=declared.generation)
        self._declared = declared
        self._source = source

    @property
    def jobs(self) -> dict[str, Job]:
        """Raise: the bodies of its jobs are in other programs."""
        problem = (
            f"{self._source or 'the YAML'} declares jobs without bodies, so no worker can run it: "
            "start the workers of those jobs, in any language, or give a Python app with jobs of "
            "the same names"
        )
        raise InvalidDefinitions([problem])


def load_yaml(path_or_text: str | Path) -> Definitions:
    """Read definitions from a file or from text, or raise with all problems at once."""
    return read_app(path_or_text).definitions()


def read_app(path_or_text: str | Path) -> YamlApp:
    """Read an app from a file or from text, or raise with all problems at once.

    A string is a path if it is one line that ends in .yaml or .yml.
    """
    text, source = str(path_or_text), ""
    if isinstance(path_or_text, Path) or ("\n" not in text and text.endswith(SUFFIXES)):
        source = text
        try:
            # utf-8-sig, because some editors write a byte order mark.
            text = Path(source).read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise InvalidDefinitions([f"{source}: it is not encoded in UTF-8: {error}"]) from error
        except OSError as error:
            raise InvalidDefinitions([f"{source}: it cannot be read: {error.strerror}"]) from error
    declared = parse(text, FileReader(source))
    assemble(declared)  # report all problems now
    return YamlApp(declared, source)


def load_manifest(
    external_id: str, record: Mapping[str, Any], defaults: Defaults = BUILT_IN
) -> Definitions:
    """Return the definitions of a manifest, or raise with all problems at once."""
    jobs, manifests = {str(record.get("job")): None}, {external_id: record}
    file = {"app": "at-run-time", "jobs": jobs, "manifests": manifests}
    # JSON is YAML, so the reader of files checks it.
    text = json.dumps(msgspec.to_builtins(file), indent=1)
    return without_application(parse(text, FileReader("")), defaults)


def change_manifest(
    stored: ManifestDefinition, record: Mapping[str, Any], defaults: Defaults = BUILT_IN
) -> Definitions:
    """Return a stored manifest with the changes of a record, or raise with all problems at once.

    A cadence replaces the stored one with its filters and exclusions, but keeps the zone.
    """
    given = {"job": stored.job, **record}
    retimed = any(given.get(name) is not None for name in (*CADENCES, "depends_on"))
    if not retimed:
        filters = [name for name in FILTERS if name != "tz" and record.get(name) is not None]
        if filters:
            named = f"manifest {stored.external_id!r}: {', '.join(filters)}"
            raise InvalidDefinitions([f"{named} belongs to a cadence: add the cadence"])
        zone = given.pop("tz", None)
        given |= _placeholder(stored)
    elif not isinstance(stored.timing.cadence, Manual) and given.get("depends_on") is None:
        given.setdefault("tz", stored.timing.zone)
    [new] = load_manifest(stored.external_id, given, defaults).manifests
    if retimed:
        timing = {"timing": new.timing, "depends_on": new.depends_on, "dormant": new.dormant}
    else:
        timing = _timing(stored, new, record, zone)
    stated = {_FIELDS.get(key, key) for key in record if key not in _OF_TIMING}
    own = {field: getattr(new, field) for field in stated}
    inherited = tuple(name for name in stored.inherited if name == "labels" or name not in stated)
    changed = structs.replace(stored, **timing, **own, inherited=inherited)
    batches = () if changed.batch is None else (Batch(name=changed.batch, prune=False),)
    return Definitions(owner=API_OWNER, manifests=(changed,), batches=batches)


def parse(text: str, reader: FileReader) -> Declarations:
    """Parse the declarations of a file."""
    try:
        root = nodes.parse(text, reader.report)
    except nodes.Unreadable as error:
        raise InvalidDefinitions([f"{reader.where(error.line)}{error.reason}"]) from error
    return read_file(root, reader)


def _placeholder(stored: ManifestDefinition) -> dict[str, Any]:
    """Return a cadence or a parent of the stored kind, so that terms are checked against it."""
    if stored.depends_on is not None:
        return {"depends_on": stored.depends_on}
    return {"manual": True} if isinstance(stored.timing.cadence, Manual) else {"daily": "00:00"}


def _timing(
    stored: ManifestDefinition, new: ManifestDefinition, record: Mapping[str, Any], zone: Any
) -> dict[str, Any]:
    """Return the timing of a manifest that keeps its cadence, with a new zone or exclusions."""
    timing = stored.timing
    if zone is not None:
        timing = structs.replace(timing, zone=zone)
    if record.get("exclude") is not None:
        timing = structs.replace(timing, exclusions=new.timing.exclusions)
    dormant = new.dormant if "dormant" in record else stored.dormant
    return {"timing": timing, "dormant": dormant}
