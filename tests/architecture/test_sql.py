"""Named SQL: each name is used, and each use exists."""

import re
from pathlib import Path

import pytest
from headway_postgres_kit.sql import Queries, parse

ROOT = Path(__file__).parents[2]
FILES = sorted(
    path
    for folder in ("libs", "services")
    for path in (ROOT / folder).rglob("*.sql")
    if path.parent.name != "migrations"
)
# Every module-level name that holds queries, and the names that are looked up in them.
_HOLDER = re.compile(r"^(\w+) = Queries\(|self\.(_?queries) = Queries\(", re.MULTILINE)


def uses(code: str) -> set[str]:
    """The names of the queries that code asks for."""
    holders = {name for match in _HOLDER.findall(code) for name in match if name} | {"queries"}
    pattern = rf"""(?:{"|".join(sorted(holders))})\["(\w+)"\]"""
    return set(re.findall(pattern, code))


def package_of(path: Path) -> Path:
    return path.parent.parent if path.parent.name == "sql" else path.parent


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{package_of(path).name}/{path.name}")
def test_every_query_is_used_and_says_what_it_is_for(path):
    queries = parse(path.read_text(), schema="any")
    assert queries
    code = "".join(file.read_text() for file in package_of(path).rglob("*.py"))
    used = uses(code)
    assert set(queries) - used == set()
    for name, query in queries.items():
        assert query.startswith("-- "), f"{name} has no line of purpose"


@pytest.mark.parametrize(
    "package", sorted({package_of(path) for path in FILES}), ids=lambda p: p.name
)
def test_every_use_exists(package):
    code = "".join(file.read_text() for file in package.rglob("*.py"))
    known = {
        name
        for path in FILES
        if package_of(path) == package
        for name in parse(path.read_text(), schema="any")
    }
    assert uses(code) <= known


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{package_of(path).name}/{path.name}")
def test_every_parameter_is_explained(path):
    for name, query in parse(path.read_text(), schema="any").items():
        comment = "\n".join(line for line in query.splitlines() if line.startswith("--"))
        body = "\n".join(line for line in query.splitlines() if not line.startswith("--"))
        for parameter in set(re.findall(r"\$\d+", body)):
            assert parameter in comment, f"{name} does not explain {parameter}"


def test_the_loader_splits_at_names_and_fills_in_the_schema():
    text = "-- name: one\n-- Purpose.\nSELECT 1 FROM {schema}.t\n\n-- name: two\nSELECT 2\n"
    assert parse(text, schema="s") == {"one": "-- Purpose.\nSELECT 1 FROM s.t", "two": "SELECT 2"}


def test_the_loader_refuses_a_schema_that_is_none():
    with pytest.raises(ValueError, match="not a schema name"):
        parse("", schema="a; drop")


def test_the_loader_knows_only_what_is_there():
    with pytest.raises(KeyError):
        Queries("headway_relay", "outbox.sql", schema="scheduler")["nothing"]
