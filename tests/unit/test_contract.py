"""The contract: old samples decode, unknown types are ignored, invalid bodies are rejected."""

from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import msgspec
import pytest
from headway_contract import (
    Event,
    InvalidName,
    Malformed,
    Unknown,
    check_name,
    decode,
    encode,
    subjects,
)
from headway_contract import event as make_event
from headway_contract.envelope import decode_lenient
from headway_contract.fields import check_manifest_id
from headway_contract.registry import EVENTS, NOTIFICATIONS
from headway_contract.work import GroupChanged
from headway_contract.worker_protocol import Heartbeat, LeaseQuestion
from hypothesis import given
from hypothesis import strategies as st

from generators.message_names import CONTROL

SAMPLES = Path(__file__).parents[2] / "proto-schemas" / "samples" / "v1"
LEASE = UUID("01930000-0000-7000-8000-000000000003")


def holds(found, sample) -> bool:
    """Return whether everything in an old sample is kept; fields may have been added."""
    if isinstance(sample, dict):
        return all(key in found and holds(found[key], value) for key, value in sample.items())
    if isinstance(sample, list):
        return len(found) == len(sample) and all(map(holds, found, sample))
    return found == sample


def samples_of(name: str) -> list[bytes]:
    """List the samples of a type, including later ones (`name+what.json`) with added fields."""
    later = sorted(SAMPLES.glob(f"{name}+*.json"))
    return [path.read_bytes() for path in (SAMPLES / f"{name}.json", *later)]


@pytest.mark.parametrize("struct", [*EVENTS, *NOTIFICATIONS], ids=lambda struct: struct.type)
def test_every_event_has_a_sample_that_decodes_and_encodes_back(struct):
    for body in samples_of(struct.type):
        [found] = decode(body)
        assert isinstance(found, Event)
        assert type(found.data) is struct
        assert holds(msgspec.json.decode(encode(found)), msgspec.json.decode(body))


@pytest.mark.parametrize("name", CONTROL)
def test_every_control_message_has_a_sample_that_decodes_and_encodes_back(name):
    for body in samples_of(name):
        found = msgspec.json.decode(body, type=CONTROL[name])
        assert holds(msgspec.json.decode(msgspec.json.encode(found)), msgspec.json.decode(body))


def test_there_is_no_sample_without_a_type():
    events = (*EVENTS, *NOTIFICATIONS)
    known = {f"{struct.type}.json" for struct in events} | {f"{name}.json" for name in CONTROL}
    found = [path.stem.partition("+")[0] for path in SAMPLES.glob("*.json")]
    assert {f"{name}.json" for name in found} == known


def test_an_unknown_type_is_unknown_and_not_an_error():
    body = (
        b'{"specversion":"1.0","id":"x","source":"s","type":"headway.new.thing.v9","data":{"a":[]}}'
    )
    assert decode(body) == [Unknown(id="x", type="headway.new.thing.v9")]


def test_unknown_fields_are_ignored():
    sample = msgspec.json.decode((SAMPLES / "headway.group.changed.v1.json").read_bytes())
    sample["data"]["colour"] = "blue"
    sample["extension"] = 1
    [found] = decode(msgspec.json.encode(sample))
    assert isinstance(found, Event)
    assert found.data.max_active == 5


def test_a_body_may_hold_several_events():
    event = make_event(
        GroupChanged(group="ops", version=1),
        id="a",
        source="s",
        subject="ops",
        time=datetime(2027, 1, 1, tzinfo=UTC),
    )
    assert decode(encode([event, event])) == [event, event]
    assert decode(encode([event])) == [event]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[1]",
        b"{}",
        b"\xff\xfe",
        b'{"specversion":"1.0"',
        b"[" * 5000,
        b'{"specversion":"1.0","id":"x","source":"s","type":"headway.group.changed.v1","data":{}}',
        b'{"specversion":"1.0","id":"x","source":"s","type":"headway.group.changed.v1",'
        b'"time":"2027-01-01T00:00:00","data":{"group":"g","version":1}}',
        b'{"specversion":"1.0","id":"x","source":"s","type":"headway.group.changed.v1",'
        b'"time":"2027-01-01T00:00:00Z","data":{"group":"a b","version":1}}',
    ],
)
def test_an_invalid_event_is_malformed(body):
    with pytest.raises(Malformed):
        decode(body)


@given(st.binary(max_size=200))
def test_decode_fails_only_in_one_way(body):
    try:
        decode(body)
    except Malformed:
        pass


@pytest.mark.parametrize("name", ["a", "A9", "a-b_c", "x" * 64, "9lives"])
def test_names_that_may_be_tokens(name):
    assert check_name("job", name) == name


@pytest.mark.parametrize(
    "name",
    ["x\n", "", "a b", "a.b", "*", ">", "_ours", "-a", "x" * 65, "a\n", "ä", None, "a\r\nPUB x"],
)
def test_names_that_may_not(name):
    with pytest.raises(InvalidName, match="job name"):
        check_name("job", name)


def test_a_manifest_id_may_be_longer_than_a_token():
    assert check_manifest_id("m" * 200) == "m" * 200
    with pytest.raises(InvalidName):
        check_manifest_id("m" * 201)


def test_the_publisher_is_read_off_the_subject():
    assert subjects.lease_and_worker(subjects.event(LEASE, "w-1")) == (LEASE, "w-1")
    with pytest.raises(ValueError):
        subjects.lease_and_worker("headway.work.ops")


def test_a_name_on_the_wire_has_no_newline_at_its_end():
    sample = msgspec.json.decode((SAMPLES / "headway.group.changed.v1.json").read_bytes())
    sample["data"]["group"] = "ops\n"
    with pytest.raises(Malformed):
        decode(msgspec.json.encode(sample))


SPELT = UUID("0193abcd-0000-7000-8000-00000000000f")


@pytest.mark.parametrize("spelling", [str(SPELT).upper(), SPELT.hex, f"{{{SPELT}}}"])
def test_a_lease_has_one_spelling(spelling):
    with pytest.raises(ValueError):
        subjects.lease_and_worker(f"headway.event.{spelling}.w1")


def test_no_worker_can_call_itself_the_dispatcher():
    with pytest.raises(InvalidName):
        subjects.cancel(subjects.DISPATCHER)
    assert subjects.event(LEASE, subjects.DISPATCHER).endswith("._dispatcher")


def test_a_fence_has_both_headers():
    assert subjects.fence(LEASE, 7) == {
        "Nats-Expected-Last-Subject-Sequence": "7",
        "Nats-Expected-Last-Subject-Sequence-Subject": f"headway.event.{LEASE}.*",
    }


def test_a_question_names_the_process():
    assert {"lease", "worker", "nonce"} == set(LeaseQuestion.__struct_fields__)


def test_null_stands_for_an_empty_list():
    """Go writes a nil slice as `null`; `null` in the data of users is kept."""
    sample = msgspec.json.decode((SAMPLES / "headway.run.failed.v1.json").read_bytes())
    sample["data"]["failure"]["kinds"] = None
    [failed] = decode(msgspec.json.encode(sample))
    assert failed.data.failure.kinds == []
    sample = msgspec.json.decode((SAMPLES / "headway.run.completed.v1.json").read_bytes())
    sample["data"]["output"] = {"rows": None}
    [completed] = decode(msgspec.json.encode(sample))
    assert completed.data.output == {"rows": None}
    body = b'{"worker": "w", "nonce": "n", "jobs": null, "concurrency": null}'
    assert decode_lenient(body, Heartbeat) == Heartbeat(worker="w", nonce="n")
    with pytest.raises(msgspec.ValidationError):
        decode_lenient(b'{"worker": null, "nonce": "n", "jobs": null}', Heartbeat)
