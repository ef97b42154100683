"""The AsyncAPI 3 document: channels, operations and messages.

It is derived from the subjects and the registry, so that it includes a new event or request
automatically. This module adds the senders and receivers. The payloads are the JSON Schemas beside
the document.
"""

import inspect
from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from headway_contract import lifecycle, orders, settled, subjects, work, worker_protocol
from headway_contract.envelope import EventData
from headway_contract.registry import EVENTS, REQUESTS
from msgspec import Struct

from generators.asyncapi_headers import REFUSAL, TRAITS, Json, refusal, trait
from generators.message_names import CONTROL, request_names

_VERSION = "3.0.0"
_SCHEMA_FORMAT = "application/schema+json;version=draft-2020-12"
_BINDING_VERSION = "0.1.0"

SCHEDULER, DISPATCHER, WORKER, OPERATOR = "scheduler", "dispatcher", "worker", "operator"
_ROLES = {
    SCHEDULER: "Decides when work is due.",
    DISPATCHER: "Drives each piece of work to a settled outcome.",
    WORKER: "Runs jobs, in any language.",
    OPERATOR: "A user, a program or the console.",
}


class Undescribed(Exception):
    """A type or a subject that this module cannot describe."""


class _Stream(Struct, frozen=True, kw_only=True):
    """A JetStream stream with its senders and receivers."""

    name: str
    address: Callable[..., str]
    about: str
    senders: tuple[str, ...]
    receivers: tuple[str, ...]
    # The durable consumer that receivers share; workers have one for each job.
    consumer: str
    trait: str


# By the module that an event is in.
_STREAMS = {
    work.__name__: _Stream(
        name=subjects.WORK_STREAM,
        address=subjects.work,
        about="Events from the scheduler to the dispatcher.",
        senders=(SCHEDULER,),
        receivers=(DISPATCHER,),
        consumer=subjects.WORK_CONSUMER,
        trait="relayed",
    ),
    orders.__name__: _Stream(
        name=subjects.RUNS_STREAM,
        address=subjects.order,
        about="Orders to workers, one message per subject.",
        senders=(DISPATCHER,),
        receivers=(WORKER,),
        consumer="worker-{job}",
        trait="relayed",
    ),
    lifecycle.__name__: _Stream(
        name=subjects.EVENTS_STREAM,
        address=subjects.event,
        about="The lifecycle of leases and runs, from workers and from the dispatcher itself, "
        f"whose worker token is {subjects.DISPATCHER}.",
        senders=(WORKER, DISPATCHER),
        receivers=(DISPATCHER,),
        consumer=subjects.EVENTS_CONSUMER,
        trait="fenced",
    ),
    settled.__name__: _Stream(
        name=subjects.SETTLED_STREAM,
        address=subjects.settled,
        about="Events from the dispatcher to the scheduler and other subscribers.",
        senders=(DISPATCHER,),
        receivers=(SCHEDULER,),
        consumer=subjects.SETTLED_CONSUMER,
        trait="relayed",
    ),
}

# Each token of a subject: a placeholder value for the function of the subject, and a description.
_TOKENS: dict[str, tuple[Any, str]] = {
    "group": ("a-group", "The manifest group."),
    "job": ("a-job", "The job."),
    "lease": (UUID(int=0), "The lease, a UUID in lower case."),
    "worker": ("a-worker", "The name of the worker."),
}

# Senders of requests that are not sent by operators only.
_SENDERS: dict[str, tuple[str, ...]] = {
    subjects.HEARTBEAT: (WORKER,),
    # The dispatcher checks with its own heartbeats that those of workers would arrive.
    subjects.WITNESS: (DISPATCHER,),
    subjects.LEASE_QUESTION: (WORKER,),
    subjects.ACTIVATION_QUESTION: (WORKER,),
    subjects.RECONCILE_QUESTION: (SCHEDULER,),
    subjects.CANCEL_REQUEST: (OPERATOR, SCHEDULER),
    subjects.INPUT_QUESTION: (OPERATOR, DISPATCHER),
    subjects.ORIGIN_QUESTION: (DISPATCHER,),
}


def document() -> Json:
    """Return the whole document."""
    builder = _Builder()
    for module, stream in _STREAMS.items():
        builder.add_stream(stream, [event for event in EVENTS if event.__module__ == module])
    without_stream = [event.type for event in EVENTS if event.__module__ not in _STREAMS]
    if without_stream:
        raise Undescribed(f"no stream carries {without_stream}: add its module to _STREAMS")
    for subject in REQUESTS:
        builder.add_request(subject)
    for name in CONTROL:
        if name.endswith(".push") or "." not in name:
            builder.add_push(name)
    left = sorted(set(CONTROL) - builder.described)
    if left:
        raise Undescribed(f"no subject is known for {left}: add it to REQUESTS")
    return builder.finished()


def address_of(function: Callable[..., str]) -> tuple[str, list[str]]:
    """Return a subject in the notation of AsyncAPI, and the names of its tokens."""
    names = list(inspect.signature(function).parameters)
    unknown = [name for name in names if name not in _TOKENS]
    if unknown:
        raise Undescribed(f"{function.__name__} has the tokens {unknown}: add them to _TOKENS")
    address = function(**{name: _TOKENS[name][0] for name in names})
    for name in names:
        address = address.replace(f".{_TOKENS[name][0]}", f".{{{name}}}")
    return address, names


class _Builder:
    """Collects channels, operations and messages."""

    def __init__(self) -> None:
        self.channels: dict[str, Json] = {}
        self.operations: dict[str, Json] = {}
        self.messages: dict[str, Json] = {}
        self.described: set[str] = set()
        self._answers: list[str] = []

    def add_stream(self, stream: _Stream, events: Iterable[type[EventData]]) -> None:
        """Add a stream and its messages, which have one event or several."""
        types = [event.type for event in events]
        for name in types:
            self._add_message(name, _payload(name), trait=stream.trait, content="cloudevents")
        several = f"{stream.name}.several"
        self._add_message(
            several,
            {"type": "array", "items": {"anyOf": [_payload(name) for name in types]}},
            trait=stream.trait,
            content="cloudevents-batch",
            about="Several events of this stream in one message.",
        )
        channel = self._add_channel(stream.address, stream.about, [*types, several])
        self.channels[channel]["x-jetstream"] = {
            "stream": stream.name,
            "consumer": stream.consumer,
        }
        for role in stream.senders:
            self._add_operation(role, "send", channel, [*types, several])
        for role in stream.receivers:
            self._add_operation(role, "receive", channel, [*types, several])

    def add_request(self, subject: str) -> None:
        """Add a request and its answer."""
        request, answer = request_names(subject)
        for name in (request, answer):
            self._add_control(name)
        self._answers += [] if answer in self._answers else [answer]
        self.channels[subject] = {
            "address": subject,
            "messages": {request: {"$ref": _pointer("messages", request)}},
            "servers": [{"$ref": "#/servers/nats"}],
        }
        service = subject.split(".")[2] if subject.count(".") > 2 else DISPATCHER
        # A heartbeat is not answered by a micro service: its reply has a field for errors.
        heartbeats = (subjects.HEARTBEAT, subjects.WITNESS)
        replies = [answer] if subject in heartbeats else [answer, REFUSAL]
        reply = {
            "channel": {"$ref": "#/channels/replies"},
            "messages": [{"$ref": f"#/channels/replies/messages/{name}"} for name in replies],
        }
        queue = subjects.SCHEDULERS if service == SCHEDULER else subjects.DISPATCHERS
        for sender in _SENDERS.get(subject, (OPERATOR,)):
            self._add_operation(sender, "send", subject, [request], reply=reply)
        self._add_operation(service, "receive", subject, [request], reply=reply, queue=queue)

    def add_push(self, name: str) -> None:
        """Add a message without an answer, which may be lost; pushes go to workers."""
        self._add_control(name)
        verb = name.partition(".")[0]
        channel = self._add_channel(
            getattr(subjects, verb),
            "Core NATS: it may be lost, and no decision depends on it.",
            [name],
        )
        to_worker = name.endswith(".push")
        sender, receiver = (DISPATCHER, WORKER) if to_worker else (WORKER, DISPATCHER)
        self._add_operation(sender, "send", channel, [name])
        queue = None if to_worker else subjects.DISPATCHERS
        self._add_operation(receiver, "receive", channel, [name], queue=queue)

    def finished(self) -> Json:
        """Return the document."""
        self.messages[REFUSAL] = refusal()
        replies = [*self._answers, REFUSAL]
        self.channels["replies"] = {
            "address": None,
            "description": "The inbox of the sender.",
            "messages": {name: {"$ref": _pointer("messages", name)} for name in replies},
        }
        return {
            "asyncapi": _VERSION,
            "info": {
                "title": "Headway",
                "version": f"{worker_protocol.PROTOCOL}.0.0",
                "description": "Every message that crosses the broker. PROTOCOL.md describes the "
                "protocol for workers.",
                "tags": [{"name": name, "description": about} for name, about in _ROLES.items()],
            },
            "defaultContentType": "application/json",
            "servers": {"nats": {"host": "localhost:4222", "protocol": "nats"}},
            "channels": self.channels,
            "operations": self.operations,
            "components": {
                "messages": self.messages,
                "messageTraits": {name: trait(named) for name, named in TRAITS.items()},
            },
        }

    def _add_channel(self, subject: Callable[..., str], about: str, messages: list[str]) -> str:
        address, names = address_of(subject)
        key = address.replace("{", "").replace("}", "")
        self.channels[key] = {
            "address": address,
            "description": about,
            "parameters": {name: {"description": _TOKENS[name][1]} for name in names},
            "messages": {name: {"$ref": _pointer("messages", name)} for name in messages},
            "servers": [{"$ref": "#/servers/nats"}],
        }
        return key

    def _add_operation(
        self,
        role: str,
        action: str,
        channel: str,
        messages: Iterable[str],
        *,
        reply: Json | None = None,
        queue: str | None = None,
    ) -> None:
        operation: Json = {
            "action": action,
            "channel": {"$ref": f"#/channels/{channel}"},
            "messages": [{"$ref": f"#/channels/{channel}/messages/{name}"} for name in messages],
            "tags": [{"name": role}],
        }
        if queue is not None:
            binding = {"queue": queue, "bindingVersion": _BINDING_VERSION}
            operation["bindings"] = {"nats": binding}
        if reply is not None:
            operation["reply"] = reply
        self.operations[f"{role}.{action}.{channel.removeprefix('headway.')}"] = operation

    def _add_control(self, name: str) -> None:
        if name not in self.described:
            self.described.add(name)
            self._add_message(name, _payload(name), trait=None, content="json")

    def _add_message(
        self, name: str, schema: Json, *, trait: str | None, content: str, about: str | None = None
    ) -> None:
        message: Json = {
            "name": name,
            "contentType": "application/json"
            if content == "json"
            else f"application/{content}+json",
            "payload": {"schemaFormat": _SCHEMA_FORMAT, "schema": schema},
        }
        described = about or _documented(name)
        message["summary"] = inspect.cleandoc(described).partition("\n")[0]
        if trait is not None:
            message["traits"] = [{"$ref": _pointer("messageTraits", trait)}]
        self.messages[name] = message


def _documented(name: str) -> str:
    known: dict[str, Any] = {**{event.type: event for event in EVENTS}, **CONTROL}
    return str(known[name].__doc__)


def _payload(name: str) -> Json:
    return {"$ref": f"./schemas/{name}.json"}


def _pointer(kind: str, name: str) -> str:
    return f"#/components/{kind}/{name}"
