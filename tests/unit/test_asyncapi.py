"""The AsyncAPI document: complete, without dangling references, valid by the official schema."""

import json
import os
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from headway_contract import subjects
from headway_contract.envelope import EventData
from headway_contract.fields import Changed
from headway_contract.registry import EVENTS, NOTIFICATIONS
from headway_errors import NATS_CODE
from nats.micro.request import ERROR_CODE_HEADER, ERROR_HEADER

from generators import asyncapi
from generators.asyncapi import REQUESTS, Undescribed, address_of, document
from generators.message_names import CONTROL

SERVICES = Path(__file__).parents[2] / "services"
NONE: dict[str, Any] = {"messages": []}
FOLDER = Path(__file__).parents[2] / "proto-schemas"
DOCUMENT = json.loads((FOLDER / "asyncapi.json").read_bytes())
# The official schema is in the npm package @asyncapi/specs: see `./justw asyncapi`.
OFFICIAL = os.environ.get("HEADWAY_ASYNCAPI_SCHEMA")


def references(value: Any, path: str = "#") -> list[tuple[str, str]]:
    """List all references with their paths."""
    if isinstance(value, dict):
        found = [(path, value["$ref"])] if isinstance(value.get("$ref"), str) else []
        return found + [
            reference
            for key, inner in value.items()
            for reference in references(inner, f"{path}/{key}")
        ]
    if isinstance(value, list):
        return [
            reference
            for index, inner in enumerate(value)
            for reference in references(inner, f"{path}/{index}")
        ]
    return []


def resolve(reference: str) -> Any:
    """Return the target of a reference."""
    file, _, pointer = reference.partition("#")
    found = DOCUMENT if not file else json.loads((FOLDER / file).read_bytes())
    for step in pointer.split("/")[1:]:
        found = found[step]
    return found


def test_every_event_and_every_request_is_a_message():
    names = set(DOCUMENT["components"]["messages"])
    assert {event.type for event in EVENTS} | set(CONTROL) <= names
    carried = {name for channel in DOCUMENT["channels"].values() for name in channel["messages"]}
    assert carried == names, "a message that no channel carries"


def test_every_subject_is_a_channel():
    addresses = {channel["address"] for channel in DOCUMENT["channels"].values()} - {None}
    spelled = {
        value
        for name, value in vars(subjects).items()
        if isinstance(value, str) and value.startswith("headway.") and not name.endswith("_CONTROL")
    }
    as_filters = {
        ".".join("*" if token.startswith("{") else token for token in address.split("."))
        for address in addresses
    }
    assert spelled <= as_filters


def test_every_reference_leads_somewhere():
    found = references(DOCUMENT)
    assert len(found) > 100
    for place, reference in found:
        assert resolve(reference) is not None, f"{place} leads nowhere: {reference}"


@pytest.mark.parametrize("name", DOCUMENT["operations"])
def test_operations_use_the_messages_of_their_channel(name):
    operation = DOCUMENT["operations"][name]
    channel = operation["channel"]["$ref"]
    assert all(
        message["$ref"].startswith(f"{channel}/messages/") for message in operation["messages"]
    )
    assert operation["action"] in ("send", "receive")
    [tag] = operation["tags"]
    assert name.startswith(f"{tag['name']}.{operation['action']}.")
    if "reply" in operation:
        replies = operation["reply"]
        assert all(
            message["$ref"].startswith(f"{replies['channel']['$ref']}/messages/")
            for message in replies["messages"]
        )


def test_every_request_has_a_reply():
    for subject in REQUESTS:
        spoken = [
            operation
            for operation in DOCUMENT["operations"].values()
            if operation["channel"]["$ref"] == f"#/channels/{subject}"
        ]
        assert {operation["action"] for operation in spoken} == {"receive", "send"}
        assert all("reply" in operation for operation in spoken)
        [served] = [operation for operation in spoken if operation["action"] == "receive"]
        service = "schedulers" if subject.startswith(subjects.SCHEDULER_CONTROL) else "dispatchers"
        assert served["bindings"]["nats"]["queue"] == service


def test_services_document_their_refusals():
    refusal = DOCUMENT["components"]["messages"]["refusal"]
    headers = refusal["headers"]["properties"]
    assert set(headers[subjects.ERROR_CODE_HEADER]["enum"]) == set(NATS_CODE.values())
    assert (subjects.ERROR_HEADER, subjects.ERROR_CODE_HEADER) == (
        ERROR_HEADER,
        ERROR_CODE_HEADER,
    )
    for operation in DOCUMENT["operations"].values():
        replies = [
            message["$ref"].rpartition("/")[2]
            for message in operation.get("reply", NONE)["messages"]
        ]
        is_service = "/headway.control." in operation["channel"]["$ref"]
        assert ("refusal" in replies) == is_service


def request_subjects(folder: str) -> set[str]:
    """Find the subjects of a service's requests in its code."""
    code = "\n".join(path.read_text() for path in (SERVICES / folder).rglob("*.py"))
    called = re.findall(r"\bask\(\s*(?:self\._?)?broker,\s*subjects\.([A-Z_]+)", code)
    return {getattr(subjects, name) for name in called}


@pytest.mark.parametrize("service", ["scheduler", "dispatcher"])
def test_requests_between_services_are_documented(service):
    documented = {
        operation["channel"]["$ref"].removeprefix("#/channels/")
        for name, operation in DOCUMENT["operations"].items()
        if name.startswith(f"{service}.send.") and "reply" in operation
    }
    assert request_subjects(service) == documented != set()


def test_a_workers_messages_about_a_lease_are_fenced():
    messages = DOCUMENT["components"]["messages"]
    for name in ("headway.lease.claimed.v1", "headway.run.completed.v1"):
        [trait] = messages[name]["traits"]
        headers = resolve(trait["$ref"])["headers"]
        assert set(headers["required"]) == set(subjects.fence(UUID_OF_A_LEASE, 0))
    [trait] = messages["headway.work.queued.v1"]["traits"]
    assert resolve(trait["$ref"])["headers"]["required"] == ["Nats-Msg-Id"]


UUID_OF_A_LEASE = asyncapi._TOKENS["lease"][0]


# Notifications travel over HTTP, so no channel of NATS has them.
SAMPLES = [
    path
    for path in sorted((FOLDER / "samples" / "v1").glob("*.json"))
    if path.stem not in {struct.type for struct in NOTIFICATIONS}
]


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_samples_fit_the_payloads_that_the_document_names(sample):
    # A later sample of a type is named after the added field.
    name = sample.stem.partition("+")[0]
    message = DOCUMENT["components"]["messages"][name]
    schema = resolve(message["payload"]["schema"]["$ref"])
    value = json.loads(sample.read_bytes())
    assert jsonschema_rs.is_valid(schema, value)
    several = next(
        (
            channel
            for channel in DOCUMENT["channels"].values()
            if name in channel["messages"] and "x-jetstream" in channel
        ),
        None,
    )
    if several is not None:
        batch = f"{several['x-jetstream']['stream']}.several"
        items = DOCUMENT["components"]["messages"][batch]["payload"]["schema"]["items"]["anyOf"]
        assert {"$ref": f"./schemas/{name}.json"} in items


def test_addresses_are_read_off_the_functions_that_make_subjects():
    assert address_of(subjects.order) == ("headway.run.{job}.{lease}", ["job", "lease"])
    assert address_of(subjects.event) == ("headway.event.{lease}.{worker}", ["lease", "worker"])


class Homeless(EventData, frozen=True, kw_only=True):
    """An event of a module without a stream."""

    type = "headway.homeless.v1"


class NewRequest(msgspec.Struct):
    """A request without a subject."""


def test_a_missing_description_is_reported_with_its_remedy(monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(asyncapi, "EVENTS", (*EVENTS, Homeless))
        with pytest.raises(Undescribed, match=r"homeless.*add its module to _STREAMS"):
            document()
    with monkeypatch.context() as patched:
        patched.setitem(asyncapi.CONTROL, "asked.request", NewRequest)
        with pytest.raises(Undescribed, match=r"no subject is known for \['asked.request'\]"):
            document()


def test_a_new_request_appears_by_itself(monkeypatch):
    monkeypatch.setitem(asyncapi.CONTROL, "new.request", NewRequest)
    monkeypatch.setitem(REQUESTS, "headway.control.dispatcher.new", (NewRequest, Changed))
    made = document()
    assert "operator.send.control.dispatcher.new" in made["operations"]
    assert "dispatcher.receive.control.dispatcher.new" in made["operations"]


@pytest.mark.skipif(not OFFICIAL, reason="needs the official schema: ./justw asyncapi fetches it")
def test_the_official_schema_has_nothing_to_complain_of():
    validator = jsonschema_rs.validator_for(json.loads(Path(str(OFFICIAL)).read_bytes()))
    assert [str(error) for error in validator.iter_errors(DOCUMENT)] == []
    assert not validator.is_valid({**DOCUMENT, "operations": {"x": {"action": "shout"}}})
