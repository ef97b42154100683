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
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
import yaml
from headway_contract.fitting import problem_of, show
from msgspec import Struct

from headway.define.calendar import did_you_mean
from headway.yaml_file.records import Record

MOST_BYTES = 8 * 1024**2
MOST_NODES = 1_000_000
MOST_LEVELS = 100

# The parser in C where the wheel brings it; events are built without recursion in both.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TEXT_TAG = "tag:yaml.org,2002:str"

_WORDS = {
    **dict.fromkeys(["", "~", "null", "Null", "NULL"], None),
    **dict.fromkeys(["true", "True", "TRUE"], True),
    **dict.fromkeys(["false", "False", "FALSE"], False),
}
# No more digits than Python reads; what is longer is text.
_WHOLE = re.compile(r"[-+]?[0-9]{1,30}")
_FRACTION = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?")


class Unreadable(Exception):
    """Text that is not the YAML we take, and the line where it stops being so."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line
        self.reason = reason


def _refuse(line: int, reason: str) -> None:
    raise Unreadable(line, reason)


class Node(Struct, eq=False):
    """A value of the text: a scalar, a list of nodes, or a mapping from text to nodes.

    A value in a mapping has the line of its key. `size` counts what is in it.
    """

    line: int
    value: Any
    size: int = 1


def parse(text: str, complain: Callable[[int, str], None] = _refuse) -> Node:
    """The one document of a text.

    `complain` is told of what can be read and must not stand there; without it that is refused.
    """
    if len(text) > MOST_BYTES:
        raise Unreadable(1, f"it is larger than {MOST_BYTES // 1024**2} MiB: split it")
    try:
        return _Reader(yaml.parse(text, Loader=_LOADER), complain).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = error.problem or error.context or "it is no YAML"
        raise Unreadable(mark.line + 1 if mark else 1, reason) from error
    except yaml.YAMLError as error:
        raise Unreadable(1, " ".join(str(error).split())) from error


def plain(node: Node) -> Any:
    """A node as plain data."""
    match node.value:
        case dict():
            return {key: plain(child) for key, child in node.value.items()}
        case list():
            return [plain(child) for child in node.value]
        case scalar:
            return scalar


class _Reader:
    """Builds nodes from the events of a parser."""

    def __init__(self, events: Iterator[Any], complain: Callable[[int, str], None]) -> None:
        self._events = events
        self._complain = complain
        self._anchors: dict[str, Node | None] = {}
        self._level = 0

    def document(self) -> Node:
        """The root of the only document."""
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
            return self._known(event)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        node = self._fresh(event)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _known(self, event: Any) -> Node:
        if event.anchor not in self._anchors:
            raise Unreadable(_line(event), f"nothing is anchored as &{event.anchor}")
        node = self._anchors[event.anchor]
        if node is None:
            raise Unreadable(_line(event), f"&{event.anchor} contains itself")
        return node

    def _fresh(self, event: Any) -> Node:
        if event.tag not in (None, "!", _TEXT_TAG):
            raise Unreadable(_line(event), f"the tag {event.tag!r} is not taken: write plain data")
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
            key, line = self._key(event), _line(event)
            child = self._node(next(self._events))
            size += child.size
            if key == "<<" and event.implicit[0]:
                merged = {**_merged(child), **merged}
                continue
            if key in own:
                first = own[key].line
                self._complain(line, f"the key {key!r} stands twice (first in line {first})")
                continue
            own[key] = Node(line, child.value, child.size)
        return Node(_line(start), {**merged, **own}, size)

    @staticmethod
    def _key(event: Any) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            raise Unreadable(_line(event), "a key must be a plain word")
        return str(event.value)


def _merged(child: Node) -> dict[str, Node]:
    """What a merge key `<<` brings in; of several the first goes before the others."""
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
    # JSON has no infinity, so a number that is too large for a float stays text too.
    if _FRACTION.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    return text


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


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
    found = (
        one for one in _alternatives(kind) if isinstance(one, type) and issubclass(one, Record)
    )
    return next(found, None)


def _record_in_list(kind: Any) -> type[Record] | None:
    """The kind of record of which several may stand here."""
    lists = (one for one in _alternatives(kind) if get_origin(one) is list)
    return next((found for one in lists if (found := _record_in(get_args(one)[0]))), None)


def _alternatives(kind: Any) -> tuple[Any, ...]:
    if get_origin(kind) is Annotated:
        return _alternatives(get_args(kind)[0])
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _hint(value: Any, error: msgspec.ValidationError) -> str:
    wanted = str(error).partition(", got")[0]
    if isinstance(value, bool | int | float) and "str" in wanted:
        return "; put it in quotes"
    return ""
