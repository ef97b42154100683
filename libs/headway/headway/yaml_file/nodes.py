"""YAML text as plain values that remember their lines, and these values as records.

The text is read as YAML 1.2: `on`, `yes`, `03:15` and `2027-06-01` are text, not a boolean, a
sexagesimal number and a date. Tags create no objects, a key may appear only once, and aliases
cannot expand a small text into a huge one.
"""

import math
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec
import yaml
from headway_contract.fitting import problem_of, show
from msgspec import Struct

from headway.define.calendar import did_you_mean
from headway.yaml_file.records import Record

MOST_BYTES = 8 * 1024**2
MOST_NODES = 1_000_000
MOST_LEVELS = 100

# The parser in C if the wheel has it; neither parser is recursive.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TEXT_TAG = "tag:yaml.org,2002:str"

_WORDS = {
    **dict.fromkeys(["", "~", "null", "Null", "NULL"], None),
    **dict.fromkeys(["true", "True", "TRUE"], True),
    **dict.fromkeys(["false", "False", "FALSE"], False),
}
# A longer number than Python parses is text.
_WHOLE = re.compile(r"[-+]?[0-9]{1,30}")
_FRACTION = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?")


class Unreadable(Exception):
    """Text that is not supported YAML, and the line of the error."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line
        self.reason = reason


def _refuse(line: int, reason: str) -> None:
    raise Unreadable(line, reason)


class Node(Struct, eq=False):
    """A value of the text: a scalar, a list of nodes, or a mapping from text to nodes."""

    # The line of the key, if the value is in a mapping.
    line: int
    value: Any
    # The number of nodes in it.
    size: int = 1


def parse(text: str, report: Callable[[int, str], None] = _refuse) -> Node:
    """Parse the only document of a text; `report` receives duplicate keys."""
    if len(text) > MOST_BYTES:
        raise Unreadable(1, f"it is larger than {MOST_BYTES // 1024**2} MiB: split it")
    try:
        return _Reader(yaml.parse(text, Loader=_LOADER), report).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = error.problem or error.context or "invalid YAML"
        raise Unreadable(mark.line + 1 if mark else 1, reason) from error
    except yaml.YAMLError as error:
        raise Unreadable(1, " ".join(str(error).split())) from error


def plain(node: Node) -> Any:
    """Convert a node to plain data."""
    match node.value:
        case dict():
            return {key: plain(child) for key, child in node.value.items()}
        case list():
            return [plain(child) for child in node.value]
        case scalar:
            return scalar


class _Reader:
    """Builds nodes from parser events."""

    def __init__(self, events: Iterator[Any], report: Callable[[int, str], None]) -> None:
        self._events = events
        self._report = report
        self._anchors: dict[str, Node | None] = {}
        self._level = 0

    def document(self) -> Node:
        """Return the root of the only document."""
        root: Node | None = None
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                if root is not None:
                    raise Unreadable(_line(event), "a second document begins: use one file each")
                root = self._node(next(self._events))
        if root is None:
            raise Unreadable(1, "it is empty: write at least 'app: name'")
        return root

    def _node(self, event: Any) -> Node:
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise Unreadable(_line(event), f"unknown anchor &{event.anchor}")
            known = self._anchors[event.anchor]
            if known is None:
                raise Unreadable(_line(event), f"&{event.anchor} contains itself")
            return known
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        node = self._fresh(event)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _fresh(self, event: Any) -> Node:
        if event.tag not in (None, "!", _TEXT_TAG):
            problem = f"the tag {event.tag!r} is not supported: write plain data"
            raise Unreadable(_line(event), problem)
        if isinstance(event, yaml.ScalarEvent):
            is_plain = event.implicit[0] and event.tag is None
            return Node(_line(event), _scalar(event.value) if is_plain else event.value)
        self._level += 1
        if self._level > MOST_LEVELS:
            raise Unreadable(_line(event), f"it is nested deeper than {MOST_LEVELS} levels")
        is_list = isinstance(event, yaml.SequenceStartEvent)
        node = self._list(event) if is_list else self._mapping(event)
        self._level -= 1
        if node.size > MOST_NODES:
            raise Unreadable(_line(event), f"it holds more than {MOST_NODES} values")
        return node

    def _list(self, start: Any) -> Node:
        children = []
        for event in self._events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            children.append(self._node(event))
        return Node(_line(start), children, 1 + sum(child.size for child in children))

    def _mapping(self, start: Any) -> Node:
        own: dict[str, Node] = {}
        merged: dict[str, Node] = {}
        size = 1
        for event in self._events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            if not isinstance(event, yaml.ScalarEvent):
                raise Unreadable(_line(event), "a key must be a scalar")
            key, line = str(event.value), _line(event)
            child = self._node(next(self._events))
            size += child.size
            if key == "<<" and event.implicit[0]:
                merged = {**_merged(child), **merged}
                continue
            if key in own:
                first = own[key].line
                self._report(line, f"the key {key!r} appears twice (first in line {first})")
                continue
            own[key] = Node(line, child.value, child.size)
        return Node(_line(start), {**merged, **own}, size)


def _merged(child: Node) -> dict[str, Node]:
    """Return the entries of a merge key `<<`; the first of several sources wins."""
    sources = child.value if isinstance(child.value, list) else [child]
    found: dict[str, Node] = {}
    for source in sources:
        if not isinstance(source.value, dict):
            raise Unreadable(child.line, "<< takes a mapping, or a list of them")
        found = {**source.value, **found}
    return found


def _scalar(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if _WHOLE.fullmatch(text):
        return int(text)
    # JSON has no infinity, so a number that is too large for a float is text.
    if _FRACTION.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    return text


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


# Stands for an invalid value whose problem is reported.
BROKEN: Any = object()


class FileReader(Struct):
    """Reads nodes as records and collects problems. `source` is the name of the file, if any."""

    source: str
    problems: list[str] = []

    def where(self, line: int) -> str:
        """Return the prefix of a message about a line."""
        return f"{self.source}:{line}: " if self.source else f"line {line}: "

    def report(self, line: int, problem: str) -> None:
        """Add a problem."""
        self.problems.append(f"{self.where(line)}{problem}")

    def record(self, node: Node, kind: type[Record], called: str) -> dict[str, Any]:
        """Return the valid fields of a record; nested records are dictionaries."""
        if not isinstance(node.value, dict):
            self.report(node.line, f"{called} is not valid: write a mapping of keys and values")
            return {}
        types, found = _field_types(kind), {}
        for key, child in node.value.items():
            if key not in types:
                hint = did_you_mean(key, types)
                self.report(child.line, f"{called} has the unknown key {key!r}{hint}")
                continue
            value = self.value(child, types[key], f"{called}: {key}")
            if value is not BROKEN and value is not None:
                found[key] = value
        for field in msgspec.structs.fields(kind):
            if field.required and field.name not in node.value:
                self.report(node.line, f"{called} lacks the key {field.name!r}")
        return found

    def section(self, node: Node, kind: type[Record], called: str) -> "Section":
        """Read a record of the file that has a name; it may be empty if no key is required."""
        required = any(field.required for field in msgspec.structs.fields(kind))
        empty = node.value is None and not required
        return Section(self, node, {} if empty else self.record(node, kind, called), called)

    def value(self, node: Node, kind: Any, called: str) -> Any:
        """Return a value of a type, or `BROKEN`."""
        inner = _record_in(kind, in_list=True)
        if inner is not None and isinstance(node.value, list):
            return [self.record(child, inner, _entry_name(called, child)) for child in node.value]
        inner = _record_in(kind)
        if inner is not None and isinstance(node.value, dict):
            return self.record(node, inner, called)
        value = plain(node)
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            problem = problem_of(value, kind) or f"{show(value)} is not valid: {error}"
            is_text = "str" in str(error).partition(", got")[0]
            if is_text and isinstance(value, bool | int | float):
                problem += "; put it in quotes"
            self.report(node.line, f"{called} {problem}")
            return BROKEN

    def children(self, node: Node | None, called: str) -> dict[str, Node]:
        """Return the entries of a mapping from names to records, which may be missing."""
        if node is None or node.value is None:
            return {}
        if isinstance(node.value, dict):
            return node.value
        self.report(node.line, f"{called} is not valid: write a mapping from names to settings")
        return {}


class Section(NamedTuple):
    """A named record of a file: its node, its valid fields, and its name in messages."""

    reader: FileReader
    node: Node
    found: dict[str, Any]
    called: str

    @property
    def where(self) -> str:
        """The prefix of messages about the record."""
        return self.reader.where(self.node.line)

    def report(self, problem: str, key: str | None = None) -> None:
        """Add a problem of the record, or of one of its keys."""
        node = self.node if key is None else self.node.value[key]
        self.reader.report(node.line, f"{self.called}{problem}")


def _entry_name(called: str, child: Node) -> str:
    """Name an entry of a list, by its id if it has one."""
    found = child.value.get("id") if isinstance(child.value, dict) else None
    return called if found is None else f"{called} {found.value!r}"


@lru_cache(maxsize=256)
def _field_types(kind: type[Record]) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _record_in(kind: Any, *, in_list: bool = False) -> type[Record] | None:
    """Return the record type among the alternatives of a type, or of the entries of its lists."""
    parts = _alternatives(kind)
    if in_list:
        entries = [get_args(part)[0] for part in parts if get_origin(part) is list]
        parts = tuple(part for entry in entries for part in _alternatives(entry))
    found = (part for part in parts if isinstance(part, type) and issubclass(part, Record))
    return next(found, None)


def _alternatives(kind: Any) -> tuple[Any, ...]:
    if get_origin(kind) is Annotated:
        return _alternatives(get_args(kind)[0])
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
