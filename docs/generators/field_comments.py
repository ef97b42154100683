"""Comments on the fields of structs, as descriptions in their JSON Schemas.

A comment belongs to the field on its line, or to the field below it.
"""

import ast
import inspect
import io
import tokenize
from functools import cache
from types import ModuleType
from typing import Any

from msgspec import Struct, structs

# Comments for tools.
_PRAGMAS = ("noqa", "type:", "language:", "fmt:")


def describe_fields(schema: dict[str, Any], kinds: dict[str, type[Struct]]) -> dict[str, Any]:
    """Add the comments on fields to the definitions of a schema; `kinds` are structs by name."""
    for name, definition in schema.get("$defs", {}).items():
        found = comments_of(kinds[name]) if name in kinds else {}
        for field, shape in definition.get("properties", {}).items():
            if field in found and "description" not in shape:
                shape["description"] = found[field]
    return schema


def comments_of(kind: type[Struct]) -> dict[str, str]:
    """Return the comments on the fields of a struct and of its bases, by encoded name."""
    own: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        module = inspect.getmodule(base)
        if issubclass(base, Struct) and module is not None and base is not Struct:
            own |= _comments_in(module).get(base.__name__, {})
    return {
        field.encode_name: own[field.name] for field in structs.fields(kind) if field.name in own
    }


@cache
def _comments_in(module: ModuleType) -> dict[str, dict[str, str]]:
    """Return the comments on fields in a module, by class and field."""
    source = inspect.getsource(module)
    lines = source.splitlines()
    comments = {
        token.start[0]: token.string.removeprefix("#").strip()
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    found: dict[str, dict[str, str]] = {}
    for kind in [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]:
        for field in kind.body:
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                above = field.lineno - 1
                while above in comments and lines[above - 1].lstrip().startswith("#"):
                    above -= 1
                places = (*range(above + 1, field.lineno), field.end_lineno)
                texts = [comments[place] for place in places if place in comments]
                text = " ".join(text for text in texts if not text.startswith(_PRAGMAS))
                if text:
                    found.setdefault(kind.name, {})[field.target.id] = text
    return found
