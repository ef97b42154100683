"""Reading JSON in which `null` stands for an empty list or map, as Go writes its nil slices."""

from typing import Any, TypeVar, get_args

import msgspec

Kind = TypeVar("Kind", bound=msgspec.Struct)


def decode_lenient(data: bytes | msgspec.Raw, kind: type[Kind]) -> Kind:
    """Decode a message; `null` for a list or a map that may be left out counts as left out."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError:
        value = msgspec.json.decode(data)
        mended = without_null_lists(value, kind)
        if mended == value:
            raise
        return msgspec.convert(mended, kind)


def without_null_lists(value: Any, kind: Any) -> Any:
    """Drop `null` where a struct has an empty list or map by default; data of users stay."""
    struct = _struct_in(kind)
    if struct is None:
        return value
    if isinstance(value, list):
        return [without_null_lists(item, struct) for item in value]
    if not isinstance(value, dict):
        return value
    kept = dict(value)
    for field in msgspec.structs.fields(struct):
        if field.encode_name not in kept:
            continue
        if kept[field.encode_name] is None and field.default_factory in (list, dict):
            del kept[field.encode_name]
        else:
            found = kept[field.encode_name]
            kept[field.encode_name] = without_null_lists(found, field.type)
    return kept


def _struct_in(kind: Any) -> type[msgspec.Struct] | None:
    """Return the struct that a type is or holds: itself, in a list, or optional."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    return next((found for part in get_args(kind) if (found := _struct_in(part))), None)
