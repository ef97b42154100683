"""A cadence and terms, as manifests, batches and their items state them in a file."""

from typing import Any, cast

from headway_decisions.timing.calendar import Exclusion

from headway.define import cadences, exclusions, marks
from headway.define.declarations import Terms
from headway.define.policies import allow, catch_up, fire_once, skip_missed
from headway.define.when import When
from headway.define.work_options import FIELDS
from headway.yaml_file.nodes import Node
from headway.yaml_file.paths import Walk
from headway.yaml_file.records import CADENCES, DayBounds

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
        terms["retry"] = marks.retry(**found["retry"])
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
        found.append(exclusions.exclude_days(record["days"]))
    if "dates" in record:
        dates = record["dates"]
        found.append(exclusions.exclude_dates(*([dates] if isinstance(dates, str) else dates)))
    if "range" in record:
        found.append(exclusions.exclude_range(*record["range"]))
    if "times" in record:
        found.append(exclusions.exclude_times(record["times"]))
    return found
