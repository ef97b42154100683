"""Named queries from `.sql` files.

A file holds blocks that start with `-- name: <name>`, followed by comment lines about the query's
purpose and parameters. `{schema}` stands for the schema that the file is loaded for, so that two
services can share a file.
"""

import re
from importlib import resources

_HEAD = re.compile(r"^-- name: ([a-z][a-z0-9_]*)\s*$", re.MULTILINE)
_IDENTIFIER = re.compile(r"^[a-z][a-z0-9_]*$")


class Queries(dict[str, str]):
    """The queries of some files by name."""

    def __init__(self, package: str, *files: str, schema: str | None = None) -> None:
        super().__init__()
        for file in files:
            text = resources.files(package).joinpath(file).read_text(encoding="utf-8")
            for name, query in parse(text, schema=schema).items():
                if name in self:
                    raise ValueError(f"query {name!r} is defined in {package} more than once")
                self[name] = query


def parse(text: str, *, schema: str | None = None) -> dict[str, str]:
    """Split the text of a file into its named queries."""
    if schema is not None:
        if not _IDENTIFIER.fullmatch(schema):
            raise ValueError(f"{schema!r} is not a schema name")
        text = text.replace("{schema}", schema)
    _, *parts = _HEAD.split(text)
    return {name: query.strip() for name, query in zip(parts[::2], parts[1::2], strict=True)}
