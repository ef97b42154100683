"""Convert the records of a file to declarations, with the functions that Python uses."""

from collections.abc import Callable
from inspect import signature
from typing import Any, cast

from headway_contract.fields import InvalidName, Rate
from headway_decisions.firing.manifest_state import Misfire
from headway_decisions.timing.calendar import Exclusion

from headway.define import cadences, inputs
from headway.define.calendar import exclude_dates, exclude_days, exclude_range, exclude_times
from headway.define.chain import add_batch
from headway.define.declarations import BatchDraft, Declarations, Draft, Item, check_app_name
from headway.define.defaults import DefaultTerms
from headway.define.definitions import GroupDefinition
from headway.define.jobs import DeclaredJob
from headway.define.options import FIELDS, allow, read_options, read_rate, retry
from headway.define.when import UNREADABLE, When
from headway.yaml_file import records
from headway.yaml_file.nodes import FileReader, Node, Section
from headway.yaml_file.records import CADENCES

_SECTIONS = ("groups", "jobs", "manifests", "batches")
FILTERS = records.DayBounds.__struct_fields__
_PLAIN_TERMS = ({*FIELDS} - {"retry"}) | {"group", "jitter", "enabled", "labels"}
_JOB_SETTINGS = {"title", "category", "description", "takes_input", "max_active"}
_JOB_SETTINGS |= {"counts_globally", "batch", "labels"}

# Positional arguments of cadences; the short form of a cadence is the first of them.
_POSITIONAL = {
    name: [
        parameter.name
        for parameter in signature(getattr(cadences, name)).parameters.values()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    for name in CADENCES
}
_EXCLUDE: dict[str, Callable[..., Exclusion]] = {
    "days": exclude_days,
    "dates": exclude_dates,
    "range": exclude_range,
    "times": exclude_times,
}


def read_file(root: Node, reader: FileReader) -> Declarations:
    """Return all declarations of a file."""
    if not isinstance(root.value, dict):
        reader.report(root.line, "the file is not valid: write a mapping that begins 'app: name'")
        return Declarations(owner="", problems=reader.problems)
    # Users may add keys that begin with `x-`, for anchors.
    top = {key: node for key, node in root.value.items() if not key.startswith("x-")}
    plain = {key: node for key, node in top.items() if key not in _SECTIONS}
    found = reader.record(Node(root.line, plain), records.FileRecord, "the file")
    defaults = found.get("defaults", {})
    declared = Declarations(
        owner=found.get("app", ""),
        generation=found.get("generation", 0),
        defaults=cast("DefaultTerms", {**_shared_terms(defaults), "tz": defaults.get("tz")}),
    )
    if "app" in found:
        try:
            check_app_name(found["app"])
        except InvalidName as error:
            reader.report(plain["app"].line, str(error))
    groups, jobs, manifests, batches = (reader.children(top.get(key), key) for key in _SECTIONS)
    for name, node in groups.items():
        group = reader.section(node, records.GroupRecord, f"group {name!r}")
        settings = {**group.found, "rate": _rate(group)}
        declared.groups.append((group.where, GroupDefinition(name=name, **settings)))
    for name, node in jobs.items():
        job = reader.section(node, records.JobRecord, f"job {name!r}")
        declared.add_job(_job(name, job))
    for name, node in manifests.items():
        manifest = reader.section(node, records.ManifestRecord, f"manifest {name!r}")
        declared.drafts.append(_manifest(name, manifest))
    for name, node in batches.items():
        batch = reader.section(node, records.BatchRecord, f"batch {name!r}")
        _add_batch(declared, name, batch)
    declared.problems[:0] = reader.problems
    return declared


def _job(name: str, section: Section) -> DeclaredJob:
    found = section.found
    schema = found.get("input_schema")
    trouble = inputs.problem_of_schema(schema)
    if trouble:
        section.report(f": its input_schema: {trouble}", key="input_schema")
    if schema is not None and not found.get("takes_input", True):
        section.report(" has an input_schema but takes no input: drop one")
    return DeclaredJob(
        **{key: found[key] for key in _JOB_SETTINGS & found.keys()},
        name=name,
        group=found.get("group", name),
        # The record has checked `start_within`.
        stated=read_options(_shared_terms(found), []),
        rate=_rate(section),
        where=section.where,
        # No input has to fit an unusable schema.
        input_schema=None if trouble else schema,
    )


def _rate(section: Section) -> Rate | None:
    problems: list[str] = []
    rate = read_rate(section.found.get("rate"), problems)
    for problem in problems:
        section.report(f": {problem}", key="rate")
    return rate


def _manifest(external_id: str, section: Section) -> Draft:
    found = section.found
    return Draft(
        external_id,
        found.get("job"),
        when=_when(section),
        input=found.get("input"),
        terms=_terms(found),
        depends_on=found.get("depends_on"),
        dormant=found.get("dormant", False),
        where=section.where,
    )


def _add_batch(declared: Declarations, name: str, section: Section) -> None:
    """Declare a batch and a manifest for each item."""
    found = section.found
    stated = _batch_items(name, section)
    own = {str(item.found["id"]): _own_terms(item, found) for item in stated}
    items = [item.found for item in stated]
    batch = BatchDraft(
        name=name,
        job=found.get("job"),
        items=[Item(item["id"], item.get("input"), item.get("depends_on")) for item in items],
        when=_batch_when(section, items),
        depends_on=found.get("depends_on"),
        dormant=found.get("dormant", False),
        prune=found.get("prune", True),
        configure=lambda item: own.get(str(item.id), {}),
        terms=_terms(found),
        where=section.where,
        places={str(item.found["id"]): item.where for item in stated},
    )
    add_batch(declared, batch)


def _batch_when(section: Section, items: list[dict[str, Any]]) -> When | None:
    """Return the cadence of a batch, which is optional if its items have one or a parent."""
    has_none = not any(name in section.found for name in (*CADENCES, "depends_on"))
    if has_none and any(name in item for item in items for name in CADENCES):
        _refuse_filters(section)
        return None
    return _when(section, follows=any("depends_on" in item for item in items))


def _refuse_filters(section: Section) -> None:
    stated = [name for name in FILTERS if name in section.found]
    if stated:
        section.report(f" has {', '.join(stated)} but no cadence: add the cadence")


def _batch_items(name: str, section: Section) -> list[Section]:
    """Return the items of a batch that have an id."""
    if "items" not in section.found:
        return []
    node, found = section.node.value["items"], section.found["items"]
    if isinstance(found, dict):
        found = [{"id": key, "input": value} for key, value in found.items()]
        children = list(node.value.values())
    else:
        children = node.value
    return [
        Section(section.reader, child, item, f"manifest '{name}-{item['id']}'")
        for item, child in zip(found, children, strict=True)
        if "id" in item
    ]


def _own_terms(section: Section, batch: dict[str, Any]) -> dict[str, Any]:
    """Return the terms of an item, including its cadence."""
    found = section.found
    own = {name: value for name, value in _terms(found).items() if value not in (None, [])}
    parent = found.get("depends_on", batch.get("depends_on"))
    if parent is not None:
        section = section._replace(found={**found, "depends_on": parent})
    elif not any(name in found for name in CADENCES):
        _refuse_filters(section)
        return own
    when = _when(section)
    return own if when is None else {**own, "when": when}


def _is_sound(section: Section) -> bool:
    """Return whether all cadences of a record are valid; a key without a value is ignored."""
    stated = section.node.value
    given = [name for name in CADENCES if name in stated and stated[name].value is not None]
    return all(name in section.found for name in given)


def _when(section: Section, *, follows: bool = False) -> When | None:
    """Return the cadence of a manifest; `None` for a dependent."""
    found = section.found
    stated = [name for name in CADENCES if name in found]
    if "depends_on" in found or (follows and not stated):
        wrong = [*stated, *(name for name in FILTERS if name in found)]
        if wrong:
            section.report(f" depends on another manifest, so it takes no {', '.join(wrong)}")
        return None
    if len(stated) == 1:
        return _cadence(section, stated[0])
    if isinstance(section.node.value, dict) and _is_sound(section):
        few = "no cadence" if not stated else f"several cadences ({', '.join(stated)})"
        section.report(f" has {few}: write one of {', '.join(CADENCES)} or depends_on")
    return UNREADABLE


def _cadence(section: Section, name: str) -> When:
    beside = {key: section.found[key] for key in FILTERS if key in section.found}
    given = section.found[name]
    if name == "manual":
        if beside or not given:
            section.report(": manual takes only true, and no filters")
        return cadences.manual()
    positional = _POSITIONAL[name]
    own = given if isinstance(given, dict) else {positional[0]: given}
    for key in filter(own.__contains__, beside):
        # The days of a cadence may be part of it, and not a filter.
        not_filter = key == "days" and ("days" in positional or isinstance(own[key], int | float))
        hint = "; the filter is weekdays" if not_filter else ""
        section.report(f" has {key} in {name} and beside it: write it once{hint}")
    if any(key not in own for key in positional):
        return UNREADABLE  # the record has reported the missing key
    when: When = getattr(cadences, name)(**{**beside, **own})
    return when


def _shared_terms(found: dict[str, Any]) -> dict[str, Any]:
    """Return the terms that both manifests and defaults may have."""
    terms: dict[str, Any] = {name: found[name] for name in _PLAIN_TERMS if name in found}
    if "retry" in found:
        terms["retry"] = retry(**found["retry"])
    terms["misfire"] = _misfire(found.get("misfire"))
    overlap = found.get("overlap")
    terms["overlap"] = allow(overlap.get("allow", 1)) if isinstance(overlap, dict) else overlap
    return terms


def _terms(found: dict[str, Any]) -> dict[str, Any]:
    """Return the terms of a manifest, a batch or an item."""
    excluded = found.get("exclude", [])
    stated = excluded if isinstance(excluded, list) else [excluded]
    exclusions = [exclusion for record in stated for exclusion in _exclusions(record)]
    return {**_shared_terms(found), "exclude": exclusions}


def _misfire(given: Any) -> Any:
    """Read a policy; without a threshold it stays a name, which gets that of the defaults."""
    if not isinstance(given, dict):
        return given
    policy = given.get("policy", "fire_once")
    if policy != "catch_up" and "threshold" not in given:
        return policy
    limit = given.get("limit", 1) if policy == "catch_up" else 1
    return Misfire(policy=policy, threshold_seconds=given.get("threshold", 60.0), limit=limit)


def _exclusions(record: dict[str, Any]) -> list[Exclusion]:
    listed = {key: given if isinstance(given, list) else [given] for key, given in record.items()}
    return [exclude(*listed[key]) for key, exclude in _EXCLUDE.items() if key in listed]
