"""Reads nodes as records, and notes all that does not fit with its line."""

from functools import lru_cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
from headway_contract.fitting import problem_of, show

from headway.define.calendar import did_you_mean
from headway.yaml_file.nodes import Node, plain
from headway.yaml_file.records import Record

# Stands for a value that was complained of already.
BROKEN: Any = object()


class Walk:
    """A walk through one file. `source` is its name, or nothing for a text."""

    def __init__(self, source: str) -> None:
        self._source = source
        self.problems: list[str] = []

    def where(self, line: int) -> str:
        """The place of a line, to be put before a problem."""
        return f"{self._source}:{line}: " if self._source else f"line {line}: "

    def complain(self, line: int, problem: str) -> None:
        """Note a problem."""
        self.problems.append(f"{self.where(line)}{problem}")

    def record(self, node: Node, kind: type[Record], called: str) -> dict[str, Any]:
        """The fields of a record that could be read; nested records are dictionaries too."""
        if not isinstance(node.value, dict):
            self.complain(node.line, f"{called} is not valid: write a mapping of keys and values")
            return {}
        types, found = _field_types(kind), {}
        for key, child in node.value.items():
            if key not in types:
                hint = did_you_mean(key, types)
                self.complain(child.line, f"{called} has the unknown key {key!r}{hint}")
                continue
            value = self.value(child, types[key], f"{called}: {key}")
            if value is not BROKEN and value is not None:
                found[key] = value
        for field in msgspec.structs.fields(kind):
            if field.required and field.name not in node.value:
                self.complain(node.line, f"{called} lacks the key {field.name!r}")
        return found

    def value(self, node: Node, kind: Any, called: str) -> Any:
        """A value of some type, or `BROKEN`."""
        inner = _record_in_list(kind)
        if inner is not None and isinstance(node.value, list):
            return [self.record(child, inner, _one_of(called, child)) for child in node.value]
        inner = _record_in(kind)
        if inner is not None and isinstance(node.value, dict):
            return self.record(node, inner, called)
        value = plain(node)
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            problem = problem_of(value, kind) or f"{show(value)} is not valid: {error}"
            self.complain(node.line, f"{called} {problem}{_hint(value, error)}")
            return BROKEN

    def children(self, node: Node | None, called: str) -> dict[str, Node]:
        """The entries of a mapping from names to records; nothing at all is an empty one."""
        if node is None or node.value is None:
            return {}
        if isinstance(node.value, dict):
            return node.value
        self.complain(node.line, f"{called} is not valid: write a mapping from names to settings")
        return {}


def _one_of(called: str, child: Node) -> str:
    """An entry of a list, by its id if it has one."""
    found = child.value.get("id") if isinstance(child.value, dict) else None
    return called if found is None else f"{called} {found.value!r}"


@lru_cache(maxsize=256)
def _field_types(kind: type[Record]) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _record_in(kind: Any) -> type[Record] | None:
    """The kind of record that may stand here."""
    found = (one for one in _options(kind) if isinstance(one, type) and issubclass(one, Record))
    return next(found, None)


def _record_in_list(kind: Any) -> type[Record] | None:
    """The kind of record of which several may stand here."""
    lists = (one for one in _options(kind) if get_origin(one) is list)
    return next((found for one in lists if (found := _record_in(get_args(one)[0]))), None)


def _options(kind: Any) -> tuple[Any, ...]:
    if get_origin(kind) is Annotated:
        return _options(get_args(kind)[0])
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _hint(value: Any, error: msgspec.ValidationError) -> str:
    wanted = str(error).partition(", got")[0]
    if isinstance(value, bool | int | float) and "str" in wanted:
        return "; put it in quotes"
    return ""
