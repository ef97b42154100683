"""From the records of a file to declarations, through the same functions that Python uses."""

from typing import Any, cast

from headway_contract.names import InvalidName
from headway_contract.work import Rate
from headway_decisions.calendar import Exclusion

from headway import batches, cadences, exclusions, inputs, marks
from headway.declarations import Declarations, Draft, Terms, check_app_name
from headway.defaults import DefaultTerms
from headway.definitions import GroupDefinition
from headway.jobs import RemoteJob
from headway.limits import read_rate
from headway.policies import allow, catch_up, fire_once, skip_missed
from headway.when import When
from headway.yaml_file.nodes import Node
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
from headway.yaml_file.walking import Walk

_SECTIONS = ("groups", "jobs", "manifests", "batches")
_FILTERS = DayBounds.__struct_fields__
_PLAIN_TERMS = (
    "group", "priority", "timeout", "cancel_grace", "on_lost_contact", "on_dead_letter", "jitter",
    "enabled", "concurrency_key", "concurrency_limit", "start_within", "labels",
)  # fmt: skip
_NOT_FOR_DEPENDENTS = (*_FILTERS, "misfire", "jitter", "exclude")

# What a cadence takes by position; a cadence that is a mere word is the first of them.
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


def read_file(root: Node, walk: Walk) -> Declarations:
    """Everything that a file declares."""
    if not isinstance(root.value, dict):
        walk.complain(root.line, "the file is not valid: write a mapping that begins 'app: name'")
        return Declarations(owner="", problems=walk.problems)
    # Keys that begin so are the user's own, for anchors to stand on.
    top = {key: node for key, node in root.value.items() if not key.startswith("x-")}
    plain = {key: node for key, node in top.items() if key not in _SECTIONS}
    found = walk.record(Node(root.line, plain), FileRecord, "the file")
    declared = Declarations(
        owner=found.get("app", ""),
        generation=found.get("generation", 0),
        defaults=cast("DefaultTerms", _shared_terms(found.get("defaults", {}))),
    )
    if "app" in found:
        _checked(walk, plain["app"].line, check_app_name, found["app"])
    for name, node in walk.children(top.get("groups"), "groups").items():
        settings = _settings(walk, node, GroupRecord, f"group {name!r}")
        if "rate" in settings:
            settings["rate"] = _rate(walk, node, settings, f"group {name!r}")
        group = GroupDefinition(name=name, **settings)
        declared.groups.append((walk.where(node.line), group))
    for name, node in walk.children(top.get("jobs"), "jobs").items():
        declared.add_job(_job(walk, name, node))
    for external_id, node in walk.children(top.get("manifests"), "manifests").items():
        declared.drafts.append(_manifest(walk, external_id, node))
    for name, node in walk.children(top.get("batches"), "batches").items():
        _add_batch(walk, declared, name, node)
    declared.problems[:0] = walk.problems
    return declared


def _settings(walk: Walk, node: Node, kind: type[Record], called: str) -> dict[str, Any]:
    """The fields of a record that may be left empty."""
    return {} if node.value is None else walk.record(node, kind, called)


def _checked(walk: Walk, line: int, check: Any, *given: Any) -> None:
    try:
        check(*given)
    except InvalidName as error:
        walk.complain(line, str(error))


def _job(walk: Walk, name: str, node: Node) -> RemoteJob:
    called = f"job {name!r}"
    found = _settings(walk, node, JobRecord, called)
    schema = found.get("input_schema")
    trouble = inputs.problem_of_schema(schema)
    if trouble:
        walk.complain(node.value["input_schema"].line, f"{called}: its input_schema: {trouble}")
    takes_input = found.get("takes_input", True)
    if schema is not None and not takes_input:
        walk.complain(node.line, f"{called} has an input_schema but takes no input: drop one")
    return RemoteJob(
        name=name,
        title=found.get("title", ""),
        category=found.get("category", ""),
        description=found.get("description", ""),
        group=found.get("group", name),
        timeout_seconds=found.get("timeout"),
        cancel_grace_seconds=found.get("cancel_grace"),
        priority=found.get("priority"),
        on_lost_contact=found.get("on_lost_contact", "stop"),
        on_dead_letter=found.get("on_dead_letter", "block"),
        takes_input=takes_input,
        max_active=found.get("max_active"),
        rate=_rate(walk, node, found, called),
        counts_globally=found.get("counts_globally", True),
        batch=found.get("batch", 1),
        concurrency_key=found.get("concurrency_key"),
        concurrency_limit=found.get("concurrency_limit", 1),
        start_within_seconds=found.get("start_within"),
        labels=found.get("labels", {}),
        where=walk.where(node.line),
        retry=marks.retry(**found["retry"]) if "retry" in found else None,
        # One that cannot be used was complained of, and no input need fit it.
        schema=None if trouble else schema,
    )


def _rate(walk: Walk, node: Node, found: dict[str, Any], called: str) -> Rate | None:
    wrong: list[str] = []
    rate = read_rate(found.get("rate"), wrong)
    for problem in wrong:
        walk.complain(node.value["rate"].line, f"{called}: {problem}")
    return rate


def _manifest(walk: Walk, external_id: str, node: Node) -> Draft:
    called = f"manifest {external_id!r}"
    found = walk.record(node, ManifestRecord, called)
    return Draft(
        external_id=external_id,
        job=found.get("job"),
        when=_when(walk, node, found, called),
        input=found.get("input"),
        terms=_terms(found),
        depends_on=found.get("depends_on"),
        dormant=found.get("dormant", False),
        where=walk.where(node.line),
    )


def _add_batch(walk: Walk, declared: Declarations, name: str, node: Node) -> None:
    called = f"batch {name!r}"
    found = walk.record(node, BatchRecord, called)
    items, places = _items(walk, node, found)
    batch = batches.BatchDraft(
        name=name,
        job=found.get("job"),
        items=items,
        when=_when(walk, node, found, called, follows=any(item.depends_on for item in items)),
        parent=found.get("depends_on"),
        dormant=found.get("dormant", False),
        prune=found.get("prune", True),
        terms=_terms(found),
        where=walk.where(node.line),
        places=places,
    )
    for draft in batches.add_batch(declared, batch):
        if (draft.when is None) == (draft.depends_on is None) and _is_sound(node, found):
            none = f"{draft.called} has neither a cadence nor a parent: give it a depends_on"
            both = f"{draft.called} has both a cadence and a parent: leave one out"
            declared.problems.append(none if draft.when is None else both)


def _items(
    walk: Walk, node: Node, found: dict[str, Any]
) -> tuple[list[batches.Item], dict[str, str]]:
    """The items of a batch, and where each of them stands."""
    stated = node.value.get("items") if isinstance(node.value, dict) else None
    if stated is None or "items" not in found:
        return [], {}
    if isinstance(stated.value, dict):
        places = {key: walk.where(child.line) for key, child in stated.value.items()}
        return [batches.Item(*pair) for pair in found["items"].items()], places
    lines = [child.line for child in stated.value]
    sound = [(line, one) for line, one in zip(lines, found["items"], strict=True) if "id" in one]
    places = {str(one["id"]): walk.where(line) for line, one in sound}
    return [batches.Item(**one) for _, one in sound], places


def _is_sound(node: Node, found: dict[str, Any]) -> bool:
    """Whether every cadence that was stated could be read."""
    return all(name in found for name in CADENCES if name in node.value)


def _when(
    walk: Walk, node: Node, found: dict[str, Any], called: str, *, follows: bool = False
) -> When | None:
    """The cadence of a manifest; none for a dependent, or where it was complained of."""
    stated = [name for name in CADENCES if name in found]
    if "depends_on" in found or (follows and not stated):
        wrong = [*stated, *(name for name in _NOT_FOR_DEPENDENTS if name in found)]
        if wrong:
            walk.complain(
                node.line,
                f"{called} depends on another manifest, so it takes no {', '.join(wrong)}",
            )
        return None
    if found.get("dormant"):
        walk.complain(node.line, f"{called} is dormant, but no depends_on says whose run wakes it")
    if len(stated) != 1:
        if isinstance(node.value, dict) and _is_sound(node, found):
            few = "no cadence" if not stated else f"several cadences ({', '.join(stated)})"
            walk.complain(
                node.line, f"{called} has {few}: write one of {', '.join(CADENCES)} or depends_on"
            )
        return None
    return _cadence(walk, node, stated[0], found, called)


def _cadence(walk: Walk, node: Node, name: str, found: dict[str, Any], called: str) -> When | None:
    beside = {key: found[key] for key in _FILTERS if key in found}
    if name == "manual":
        if beside or not found[name]:
            walk.complain(node.line, f"{called}: manual is just true, and takes no filters")
        return cadences.manual()
    own = found[name] if isinstance(found[name], dict) else {_POSITIONAL[name][0]: found[name]}
    for key in own.keys() & beside.keys():
        hint = "; the filter is weekdays" if key == "days" and _names_days(name, own) else ""
        walk.complain(
            node.line, f"{called} states {key} in {name} and beside it: state it once{hint}"
        )
    options = {**beside, **own}
    if any(key not in own for key in _POSITIONAL[name]):
        return None  # it lacks a key, and was complained of
    given = [options.pop(key) for key in _POSITIONAL[name]]
    when: When = getattr(cadences, name)(*given, **options)
    return when


def _names_days(cadence: str, own: dict[str, Any]) -> bool:
    """Whether the days of a cadence are part of it, and no filter."""
    return "days" in _POSITIONAL[cadence] or isinstance(own["days"], int | float)


def _shared_terms(found: dict[str, Any]) -> dict[str, Any]:
    """The terms that may be stated for one manifest and for all of them."""
    terms: dict[str, Any] = {name: found[name] for name in _PLAIN_TERMS if name in found}
    if "retry" in found:
        terms["retry"] = marks.retry(**found["retry"])
    terms["misfire"] = _misfire(found.get("misfire"))
    overlap = found.get("overlap")
    terms["overlap"] = allow(overlap.get("allow", 1)) if isinstance(overlap, dict) else overlap
    return terms


def _terms(found: dict[str, Any]) -> Terms:
    terms = _shared_terms(found)
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
        found.append(exclusions.exclude_days(record["days"]))
    if "dates" in record:
        dates = record["dates"]
        found.append(exclusions.exclude_dates(*([dates] if isinstance(dates, str) else dates)))
    if "range" in record:
        found.append(exclusions.exclude_range(*record["range"]))
    if "times" in record:
        found.append(exclusions.exclude_times(record["times"]))
    return found
