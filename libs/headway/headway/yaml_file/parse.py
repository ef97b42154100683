"""Convert the records of a file to declarations, with the functions that Python uses."""
from typing import Any, cast

from headway_contract.names import InvalidName
from headway_contract.work import Rate
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
from headway.yaml_file.nodes import Node, Walk
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


def read_file(root: Node, walk: Walk) -> Declarations:
    """Everything that a file declares."""
    if not isinstance(root.value, dict):
        walk.complain(root.line, "the file is not valid: write a mapping that begins 'app: name'")
        return Declarations(owner="", problems=walk.problems)
    # Keys that begin so are the user's own, for anchors to stand on.
    top = {key: node for key, node in root.value.items() if not key.startswith("x-")}
    plain = {key: node for key, node in top.items() if key not in _SECTIONS}
    found = walk.record(Node(root.line, plain), FileRecord, "the file")
    defaults = found.get("defaults", {})
    declared = Declarations(
        owner=found.get("app", ""),
        generation=found.get("generation", 0),
        defaults=cast("DefaultTerms", {**shared_terms(defaults), "tz": defaults.get("tz")}),
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
        add_batch(walk, declared, name, node)
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
    plain = ("title", "category", "description", "max_active", "counts_globally", "batch", "labels")
    # A time to start in was checked when the record was read.
    stated = read_options(shared_terms(found), [])
    return RemoteJob(
        **{key: found[key] for key in plain if key in found},
        name=name,
        group=found.get("group", name),
        stated=stated,
        takes_input=takes_input,
        rate=_rate(walk, node, found, called),
        where=walk.where(node.line),
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
        when=when_of(walk, node, found, called),
        input=found.get("input"),
        terms=terms_of(found),
        depends_on=found.get("depends_on"),
        dormant=found.get("dormant", False),
        where=walk.where(node.line),
    )


def add_batch(walk: Walk, declared: Declarations, name: str, node: Node) -> None:
    """Declare a batch and a manifest for each of its items."""
    called = f"batch {name!r}"
    found = walk.record(node, BatchRecord, called)
    stated = _batch_items(node, found)
    own = {
        str(one["id"]): _own_terms(walk, child, one, f"manifest '{name}-{one['id']}'", found)
        for one, child in stated
        if child is not None
    }
    items = [Item(one["id"], one.get("input"), one.get("depends_on")) for one, _ in stated]
    batch = BatchDraft(
        name=name,
        job=found.get("job"),
        items=items,
        when=_batch_when(walk, node, found, called, [one for one, _ in stated]),
        parent=found.get("depends_on"),
        dormant=found.get("dormant", False),
        prune=found.get("prune", True),
        configure=lambda item: own.get(str(item.id), {}),
        terms=terms_of(found),
        where=walk.where(node.line),
        places=_places(walk, node),
    )
    for draft in declare_batch(declared, batch):
        if (draft.when is None) == (draft.depends_on is None) and is_sound(node, found):
            none = f"{draft.called} has neither a cadence nor a parent: give it a depends_on"
            both = f"{draft.called} has both a cadence and a parent: leave one out"
            declared.problems.append(none if draft.when is None else both)


def _batch_when(
    walk: Walk, node: Node, found: dict[str, Any], called: str, items: list[dict[str, Any]]
) -> When | None:
    """The cadence of a batch, which needs none if its items have one, or a parent."""
    has_none = not any(name in found for name in (*CADENCES, "depends_on"))
    if has_none and any(name in one for one in items for name in CADENCES):
        _refuse_filters(walk, node, found, called)
        if found.get("dormant"):
            walk.complain(node.line, f"{called} is dormant, so its items take no cadence")
        return None
    follows = any("depends_on" in one for one in items)
    return when_of(walk, node, found, called, follows=follows)


def _refuse_filters(walk: Walk, node: Node, found: dict[str, Any], called: str) -> None:
    stated = [name for name in FILTERS if name in found]
    if stated:
        words = f"{called} states {', '.join(stated)} and no cadence of its own: state it, too"
        walk.complain(node.line, words)


def _batch_items(node: Node, found: dict[str, Any]) -> list[tuple[dict[str, Any], Node | None]]:
    """The items of a batch that have an id, with the node of those that may state more."""
    stated = node.value.get("items") if isinstance(node.value, dict) else None
    if stated is None or "items" not in found:
        return []
    if isinstance(stated.value, dict):
        return [({"id": key, "input": value}, None) for key, value in found["items"].items()]
    pairs = zip(found["items"], stated.value, strict=True)
    return [(one, child) for one, child in pairs if "id" in one]


def _places(walk: Walk, node: Node) -> dict[str, str]:
    """Where each item stands, by its id."""
    stated = node.value.get("items") if isinstance(node.value, dict) else None
    match stated.value if stated is not None else None:
        case dict() as by_id:
            return {key: walk.where(child.line) for key, child in by_id.items()}
        case list() as listed:
            named = [one for one in listed if isinstance(one.value, dict) and "id" in one.value]
            return {str(one.value["id"].value): walk.where(one.line) for one in named}
    return {}


def _own_terms(
    walk: Walk, node: Node, one: dict[str, Any], called: str, batch: dict[str, Any]
) -> dict[str, Any]:
    """What an item states for itself, its cadence included."""
    own: dict[str, Any] = {
        name: value for name, value in terms_of(one).items() if value is not None and value != []
    }
    has_cadence = any(name in one for name in CADENCES)
    parent = one.get("depends_on", batch.get("depends_on"))
    if parent is not None or has_cadence:
        following = {"depends_on": parent} if parent is not None else {}
        when = when_of(walk, node, {**one, **following}, called)
        if when is not None:
            own["when"] = when
    else:
        _refuse_filters(walk, node, one, called)
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


def is_sound(node: Node, found: dict[str, Any]) -> bool:
    """Whether every cadence that was stated could be read; a key without a value states none."""
    stated = (
        name for name in CADENCES if name in node.value and node.value[name].value is not None
    )
    return all(name in found for name in stated)


def when_of(
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
        if isinstance(node.value, dict) and is_sound(node, found):
            few = "no cadence" if not stated else f"several cadences ({', '.join(stated)})"
            walk.complain(
                node.line, f"{called} has {few}: write one of {', '.join(CADENCES)} or depends_on"
            )
        return None
    return _cadence(walk, node, stated[0], found, called)


def _cadence(walk: Walk, node: Node, name: str, found: dict[str, Any], called: str) -> When | None:
    beside = {key: found[key] for key in FILTERS if key in found}
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


def shared_terms(found: dict[str, Any]) -> dict[str, Any]:
    """The terms that may be stated for one manifest and for all of them."""
    terms: dict[str, Any] = {name: found[name] for name in _PLAIN_TERMS if name in found}
    if "retry" in found:
        terms["retry"] = retry(**found["retry"])
    terms["misfire"] = _misfire(found.get("misfire"))
    overlap = found.get("overlap")
    terms["overlap"] = allow(overlap.get("allow", 1)) if isinstance(overlap, dict) else overlap
    return terms


def terms_of(found: dict[str, Any]) -> Terms:
    """The terms that a manifest, a batch or an item states."""
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
