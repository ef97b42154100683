"""Converts the records of a file to declarations, with the functions that Python uses."""

from typing import Any, cast

from headway_contract.fields import InvalidName, Rate
from headway_decisions.timing.calendar import Exclusion

from headway.define import cadences, inputs
from headway.define.calendar import exclude_dates, exclude_days, exclude_range, exclude_times
from headway.define.chain import BatchDraft, Item
from headway.define.chain import add_batch as declare_batch
from headway.define.declarations import Declarations, Draft, Terms, check_app_name
from headway.define.defaults import DefaultTerms
from headway.define.definitions import GroupDefinition
from headway.define.jobs import RemoteJob
from headway.define.options import (
    FIELDS,
    allow,
    catch_up,
    fire_once,
    read_options,
    read_rate,
    retry,
    skip_missed,
)
from headway.define.when import When
from headway.yaml_file.nodes import FileReader, Node
from headway.yaml_file.records import (
    CADENCES,
    BatchRecord,
    DayBounds,
    FileRecord,
    GroupRecord,
    JobRecord,
    ManifestRecord,
    Record,
)

_SECTIONS = ("groups", "jobs", "manifests", "batches")


def read_file(root: Node, reader: FileReader) -> Declarations:
    """Return all declarations of a file."""
    if not isinstance(root.value, dict):
        reader.report(root.line, "the file is not valid: write a mapping that begins 'app: name'")
        return Declarations(owner="", problems=reader.problems)
    # Users may add keys that begin with `x-`, for anchors.
    top = {key: node for key, node in root.value.items() if not key.startswith("x-")}
    plain = {key: node for key, node in top.items() if key not in _SECTIONS}
    found = reader.record(Node(root.line, plain), FileRecord, "the file")
    defaults = found.get("defaults", {})
    declared = Declarations(
        owner=found.get("app", ""),
        generation=found.get("generation", 0),
        defaults=cast("DefaultTerms", {**shared_terms(defaults), "tz": defaults.get("tz")}),
    )
    if "app" in found:
        _checked(reader, plain["app"].line, check_app_name, found["app"])
    for name, node in reader.children(top.get("groups"), "groups").items():
        settings = _settings(reader, node, GroupRecord, f"group {name!r}")
        if "rate" in settings:
            settings["rate"] = _rate(reader, node, settings, f"group {name!r}")
        group = GroupDefinition(name=name, **settings)
        declared.groups.append((reader.where(node.line), group))
    for name, node in reader.children(top.get("jobs"), "jobs").items():
        declared.add_job(_job(reader, name, node))
    for external_id, node in reader.children(top.get("manifests"), "manifests").items():
        declared.drafts.append(_manifest(reader, external_id, node))
    for name, node in reader.children(top.get("batches"), "batches").items():
        add_batch(reader, declared, name, node)
    declared.problems[:0] = reader.problems
    return declared


def _settings(reader: FileReader, node: Node, kind: type[Record], called: str) -> dict[str, Any]:
    """Return the fields of a record that may be empty."""
    return {} if node.value is None else reader.record(node, kind, called)


def _checked(reader: FileReader, line: int, check: Any, *given: Any) -> None:
    try:
        check(*given)
    except InvalidName as error:
        reader.report(line, str(error))


def _job(reader: FileReader, name: str, node: Node) -> RemoteJob:
    called = f"job {name!r}"
    found = _settings(reader, node, JobRecord, called)
    schema = found.get("input_schema")
    trouble = inputs.problem_of_schema(schema)
    if trouble:
        reader.report(node.value["input_schema"].line, f"{called}: its input_schema: {trouble}")
    takes_input = found.get("takes_input", True)
    if schema is not None and not takes_input:
        reader.report(node.line, f"{called} has an input_schema but takes no input: drop one")
    plain = ("title", "category", "description", "max_active", "counts_globally", "batch", "labels")
    # The record has checked `start_within`.
    stated = read_options(shared_terms(found), [])
    return RemoteJob(
        **{key: found[key] for key in plain if key in found},
        name=name,
        group=found.get("group", name),
        stated=stated,
        takes_input=takes_input,
        rate=_rate(reader, node, found, called),
        where=reader.where(node.line),
        # No input has to fit an unusable schema.
        schema=None if trouble else schema,
    )


def _rate(reader: FileReader, node: Node, found: dict[str, Any], called: str) -> Rate | None:
    wrong: list[str] = []
    rate = read_rate(found.get("rate"), wrong)
    for problem in wrong:
        reader.report(node.value["rate"].line, f"{called}: {problem}")
    return rate


def _manifest(reader: FileReader, external_id: str, node: Node) -> Draft:
    called = f"manifest {external_id!r}"
    found = reader.record(node, ManifestRecord, called)
    return Draft(
        external_id=external_id,
        job=found.get("job"),
        when=when_of(reader, node, found, called),
        input=found.get("input"),
        terms=terms_of(found),
        depends_on=found.get("depends_on"),
        dormant=found.get("dormant", False),
        where=reader.where(node.line),
    )


def add_batch(reader: FileReader, declared: Declarations, name: str, node: Node) -> None:
    """Declare a batch and a manifest for each item."""
    called = f"batch {name!r}"
    found = reader.record(node, BatchRecord, called)
    stated = _batch_items(node, found)
    own = {
        str(item["id"]): _own_terms(reader, child, item, f"manifest '{name}-{item['id']}'", found)
        for item, child in stated
        if child is not None
    }
    items = [Item(item["id"], item.get("input"), item.get("depends_on")) for item, _ in stated]
    batch = BatchDraft(
        name=name,
        job=found.get("job"),
        items=items,
        when=_batch_when(reader, node, found, called, [item for item, _ in stated]),
        parent=found.get("depends_on"),
        dormant=found.get("dormant", False),
        prune=found.get("prune", True),
        configure=lambda item: own.get(str(item.id), {}),
        terms=terms_of(found),
        where=reader.where(node.line),
        places=_places(reader, node),
    )
    for draft in declare_batch(declared, batch):
        if (draft.when is None) == (draft.depends_on is None) and is_sound(node, found):
            none = f"{draft.called} has neither a cadence nor a parent: give it a depends_on"
            both = f"{draft.called} has both a cadence and a parent: leave one out"
            declared.problems.append(none if draft.when is None else both)


def _batch_when(
    reader: FileReader, node: Node, found: dict[str, Any], called: str, items: list[dict[str, Any]]
) -> When | None:
    """Return the cadence of a batch, which is optional if its items have one or a parent."""
    has_none = not any(name in found for name in (*CADENCES, "depends_on"))
    if has_none and any(name in item for item in items for name in CADENCES):
        _refuse_filters(reader, node, found, called)
        if found.get("dormant"):
            reader.report(node.line, f"{called} is dormant, so its items take no cadence")
        return None
    follows = any("depends_on" in item for item in items)
    return when_of(reader, node, found, called, follows=follows)


def _refuse_filters(reader: FileReader, node: Node, found: dict[str, Any], called: str) -> None:
    stated = [name for name in FILTERS if name in found]
    if stated:
        words = f"{called} has {', '.join(stated)} but no cadence: add the cadence"
        reader.report(node.line, words)


def _batch_items(node: Node, found: dict[str, Any]) -> list[tuple[dict[str, Any], Node | None]]:
    """Return the items of a batch that have an id, with their nodes if they may have terms."""
    stated = node.value.get("items") if isinstance(node.value, dict) else None
    if stated is None or "items" not in found:
        return []
    if isinstance(stated.value, dict):
        return [({"id": key, "input": value}, None) for key, value in found["items"].items()]
    pairs = zip(found["items"], stated.value, strict=True)
    return [(item, child) for item, child in pairs if "id" in item]


def _places(reader: FileReader, node: Node) -> dict[str, str]:
    """Return the place of each item in the file, by its id."""
    stated = node.value.get("items") if isinstance(node.value, dict) else None
    match stated.value if stated is not None else None:
        case dict() as by_id:
            return {key: reader.where(child.line) for key, child in by_id.items()}
        case list() as listed:
            named = [item for item in listed if isinstance(item.value, dict) and "id" in item.value]
            return {str(item.value["id"].value): reader.where(item.line) for item in named}
    return {}


def _own_terms(
    reader: FileReader, node: Node, item: dict[str, Any], called: str, batch: dict[str, Any]
) -> dict[str, Any]:
    """Return the terms of an item, including its cadence."""
    own: dict[str, Any] = {
        name: value for name, value in terms_of(item).items() if value is not None and value != []
    }
    has_cadence = any(name in item for name in CADENCES)
    parent = item.get("depends_on", batch.get("depends_on"))
    if parent is not None or has_cadence:
        following = {"depends_on": parent} if parent is not None else {}
        when = when_of(reader, node, {**item, **following}, called)
        if when is not None:
            own["when"] = when
    else:
        _refuse_filters(reader, node, item, called)
    return own


FILTERS = DayBounds.__struct_fields__
_PLAIN_TERMS = (
    *(option for option in FIELDS if option != "retry"),
    "group",
    "jitter",
    "enabled",
    "labels",
)
_NOT_FOR_DEPENDENTS = (*FILTERS, "misfire", "jitter", "exclude")

# Positional arguments of cadences; the short form of a cadence is the first of them.
_POSITIONAL = {
    "cron": ("expression",),
    "every": (),
    "spaced": (),
    "daily": ("at",),
    "weekly": ("days", "at"),
    "monthly": ("days", "at"),
    "monthly_dow": ("weeks", "days", "at"),
    "once": ("at",),
}


def is_sound(node: Node, found: dict[str, Any]) -> bool:
    """Return whether all cadences of a record are valid; a key without a value is ignored."""
    stated = (
        name for name in CADENCES if name in node.value and node.value[name].value is not None
    )
    return all(name in found for name in stated)


def when_of(
    reader: FileReader, node: Node, found: dict[str, Any], called: str, *, follows: bool = False
) -> When | None:
    """Return the cadence of a manifest; `None` for a dependent, or if it is invalid."""
    stated = [name for name in CADENCES if name in found]
    if "depends_on" in found or (follows and not stated):
        wrong = [*stated, *(name for name in _NOT_FOR_DEPENDENTS if name in found)]
        if wrong:
            reader.report(
                node.line,
                f"{called} depends on another manifest, so it takes no {', '.join(wrong)}",
            )
        return None
    if found.get("dormant"):
        reader.report(node.line, f"{called} is dormant and has no parent: set depends_on")
    if len(stated) != 1:
        if isinstance(node.value, dict) and is_sound(node, found):
            few = "no cadence" if not stated else f"several cadences ({', '.join(stated)})"
            reader.report(
                node.line, f"{called} has {few}: write one of {', '.join(CADENCES)} or depends_on"
            )
        return None
    return _cadence(reader, node, stated[0], found, called)


def _cadence(
    reader: FileReader, node: Node, name: str, found: dict[str, Any], called: str
) -> When | None:
    beside = {key: found[key] for key in FILTERS if key in found}
    if name == "manual":
        if beside or not found[name]:
            reader.report(node.line, f"{called}: manual takes only true, and no filters")
        return cadences.manual()
    own = found[name] if isinstance(found[name], dict) else {_POSITIONAL[name][0]: found[name]}
    for key in own.keys() & beside.keys():
        hint = "; the filter is weekdays" if key == "days" and _names_days(name, own) else ""
        reader.report(node.line, f"{called} has {key} in {name} and beside it: write it once{hint}")
    options = {**beside, **own}
    if any(key not in own for key in _POSITIONAL[name]):
        return None  # the record has reported the missing key
    given = [options.pop(key) for key in _POSITIONAL[name]]
    when: When = getattr(cadences, name)(*given, **options)
    return when


def _names_days(cadence: str, own: dict[str, Any]) -> bool:
    """Return whether the days of a cadence are part of it, and not a filter."""
    return "days" in _POSITIONAL[cadence] or isinstance(own["days"], int | float)


def shared_terms(found: dict[str, Any]) -> dict[str, Any]:
    """Return the terms that both manifests and defaults may have."""
    terms: dict[str, Any] = {name: found[name] for name in _PLAIN_TERMS if name in found}
    if "retry" in found:
        terms["retry"] = retry(**found["retry"])
    terms["misfire"] = _misfire(found.get("misfire"))
    overlap = found.get("overlap")
    terms["overlap"] = allow(overlap.get("allow", 1)) if isinstance(overlap, dict) else overlap
    return terms


def terms_of(found: dict[str, Any]) -> Terms:
    """Return the terms of a manifest, a batch or an item."""
    terms = shared_terms(found)
    excluded = found.get("exclude", [])
    terms["exclude"] = [
        exclusion
        for record in (excluded if isinstance(excluded, list) else [excluded])
        for exclusion in _exclusions(record)
    ]
    return cast("Terms", terms)


def _misfire(given: Any) -> Any:
    if not isinstance(given, dict):
        return given
    if "threshold" not in given and given.get("policy") in ("fire_once", "skip"):
        return given["policy"]  # with the threshold of the defaults
    threshold = given.get("threshold", 60.0)
    match given.get("policy"):
        case "catch_up":
            return catch_up(given.get("limit", 1), threshold=threshold)
        case "skip":
            return skip_missed(threshold=threshold)
        case _:
            return fire_once(threshold=threshold)


def _exclusions(record: dict[str, Any]) -> list[Exclusion]:
    found = []
    if "days" in record:
        found.append(exclude_days(record["days"]))
    if "dates" in record:
        dates = record["dates"]
        found.append(exclude_dates(*([dates] if isinstance(dates, str) else dates)))
    if "range" in record:
        found.append(exclude_range(*record["range"]))
    if "times" in record:
        found.append(exclude_times(record["times"]))
    return found
