"""From the records of a file to declarations, through the same functions that Python uses."""

from typing import Any, cast

from headway_contract.names import InvalidName
from headway_contract.work import Rate

from headway.define import inputs
from headway.define.declarations import Declarations, Draft, check_app_name
from headway.define.defaults import DefaultTerms
from headway.define.definitions import GroupDefinition
from headway.define.jobs import RemoteJob
from headway.define.limits import read_rate
from headway.define.work_options import read_options
from headway.yaml_file.batches import add_batch
from headway.yaml_file.nodes import Node
from headway.yaml_file.paths import Walk
from headway.yaml_file.records import FileRecord, GroupRecord, JobRecord, ManifestRecord, Record
from headway.yaml_file.terms import shared_terms, terms_of, when_of

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
