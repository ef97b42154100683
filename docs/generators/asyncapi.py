"""The AsyncAPI 3 document: who says what to whom, where, and in which shape.

It is put together from the subjects and the registry, so a new event or request appears by
generating anew. What cannot be read off those is said here: who speaks on a stream, and
which answers do not follow the rule of names. The payloads are the JSON Schemas beside it.
"""

import inspect
from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from headway_contract import lifecycle, orders, settled, subjects, work, worker_protocol
from headway_contract.envelope import EventData
from headway_contract.registry import CONTROL, EVENTS
from msgspec import Struct

from generators.asyncapi_headers import REFUSAL, TRAITS, Json, refusal, trait

_VERSION = "3.0.0"
_SCHEMA_FORMAT = "application/schema+json;version=draft-2020-12"
_BINDING_VERSION = "0.1.0"

SCHEDULER, DISPATCHER, WORKER, OPERATOR = "scheduler", "dispatcher", "worker", "operator"
_ROLES = {
    SCHEDULER: "Decides when work is due.",
    DISPATCHER: "Drives each piece of work to a settled outcome.",
    WORKER: "Runs jobs, in any language.",
    OPERATOR: "A person, a program or the console that asks and changes.",
}


class Undescribed(Exception):
    """Something on the wire of which this module does not know enough."""


class _Stream(Struct, frozen=True, kw_only=True):
    """A JetStream stream: where it is published to, and who speaks and listens."""

    name: str
    address: Callable[..., str]
    about: str
    senders: tuple[str, ...]
    receivers: tuple[str, ...]
    # The durable that receivers share; workers have one for each job.
    consumer: str
    trait: str


# By the module that an event is in.
_STREAMS = {
    work.__name__: _Stream(
        name=subjects.WORK_STREAM,
        address=subjects.work,
        about="What the scheduler tells the dispatcher.",
        senders=(SCHEDULER,),
        receivers=(DISPATCHER,),
        consumer=subjects.WORK_CONSUMER,
        trait="relayed",
    ),
    orders.__name__: _Stream(
        name=subjects.RUNS_STREAM,
        address=subjects.order,
        about="Orders to workers. One message a subject.",
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
        about="What the dispatcher tells the scheduler, and anybody who listens.",
        senders=(DISPATCHER,),
        receivers=(SCHEDULER,),
        consumer=subjects.SETTLED_CONSUMER,
        trait="relayed",
    ),
}

# What stands for each token of a subject while its address is read off the function, and what
# the token is.
_TOKENS: dict[str, tuple[Any, str]] = {
    "group": ("a-group", "The manifest group."),
    "job": ("a-job", "The job."),
    "lease": (UUID(int=0), "The lease, a UUID in lower case."),
    "worker": ("a-worker", "The name of the worker."),
}

# Who asks, where it is not only an operator.
_ASKED_BY: dict[str, tuple[str, ...]] = {
    # The dispatcher tries by its own whether those of workers could be heard.
    "heartbeat": (WORKER,),
    "witness": (DISPATCHER,),
    "lease": (WORKER,),
    "activation": (WORKER,),
    "reconcile": (SCHEDULER,),
    "cancel": (OPERATOR, SCHEDULER),
    "input": (OPERATOR, DISPATCHER),
    "origin": (DISPATCHER,),
}
# Requests in the shape of another, and answers that are not called like their request.
_SAME_REQUEST = {
    "witness": "heartbeat.request",
    "plan": "apply.request",
    "scheduler_settings": "settings.question",
    "dispatcher_settings": "settings.question",
}
_OTHER_ANSWERS = {
    "witness": "heartbeat.reply",
    "plan": "apply.answer",
    "scheduler_settings": "settings.answer",
    "dispatcher_settings": "settings.answer",
    "change": "changed.answer",
    "change_group": "changed.answer",
    "change_job": "changed.answer",
    "delete": "changed.answer",
    "rename_app": "changed.answer",
    "retire_app": "changed.answer",
    "give_back_app": "changed.answer",
    "dismiss": "changed.answer",
    "notify_test": "changed.answer",
    "retry": "letters_changed.answer",
    "begin_canary": "canary_status.answer",
    "stop_canary": "canary_status.answer",
    "acknowledge": "letters_changed.answer",
    "cancel_outstanding": "cancel.answer",
}


def document() -> Json:
    """The whole document."""
    book = _Book()
    for module, stream in _STREAMS.items():
        book.add_stream(stream, [one for one in EVENTS if one.__module__ == module])
    homeless = [one.type for one in EVENTS if one.__module__ not in _STREAMS]
    if homeless:
        raise Undescribed(f"no stream is said to carry {homeless}: add its module to _STREAMS")
    for subject in requests():
        book.add_request(subject, requests()[subject])
    for name in CONTROL:
        if name.endswith(".push") or "." not in name:
            book.add_push(name)
    left = sorted(set(CONTROL) - book.told)
    if left:
        raise Undescribed(
            f"no subject is known for {left}: call its constant like it (<VERB>_REQUEST for "
            "'<verb>.request'), or say in _SAME_REQUEST or _OTHER_ANSWERS where it belongs"
        )
    return book.finished()


def requests() -> dict[str, str]:
    """The verb of each subject that answers, by the names of the constants."""
    found = {subjects.HEARTBEAT: "heartbeat", subjects.WITNESS: "witness"}
    for name, value in vars(subjects).items():
        for suffix in ("_QUESTION", "_REQUEST"):
            if name.endswith(suffix):
                found[value] = name.removesuffix(suffix).lower()
    return found


def address_of(function: Callable[..., str]) -> tuple[str, list[str]]:
    """A subject with its tokens named, as AsyncAPI writes it; and these names."""
    names = list(inspect.signature(function).parameters)
    unknown = [name for name in names if name not in _TOKENS]
    if unknown:
        raise Undescribed(f"{function.__name__} has the tokens {unknown}: add them to _TOKENS")
    address = function(**{name: _TOKENS[name][0] for name in names})
    for name in names:
        address = address.replace(f".{_TOKENS[name][0]}", f".{{{name}}}")
    return address, names


class _Book:
    """Channels, operations and messages, as they are found."""

    def __init__(self) -> None:
        self.channels: dict[str, Json] = {}
        self.operations: dict[str, Json] = {}
        self.messages: dict[str, Json] = {}
        self.told: set[str] = set()
        self._answers: list[str] = []

    def add_stream(self, stream: _Stream, events: Iterable[type[EventData]]) -> None:
        """A stream, and what travels in it: one event a message, or several."""
        types = [one.type for one in events]
        for one in types:
            self._add_message(one, _payload(one), trait=stream.trait, content="cloudevents")
        several = f"{stream.name}.several"
        self._add_message(
            several,
            {"type": "array", "items": {"anyOf": [{"$ref": _file(one)} for one in types]}},
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

    def add_request(self, subject: str, verb: str) -> None:
        """A request and its answer."""
        request = _named(_SAME_REQUEST, verb, ("question", "request"))
        answer = _named(_OTHER_ANSWERS, verb, ("answer", "reply"))
        for name in (request, answer):
            self._add_control(name)
        self._answers += [] if answer in self._answers else [answer]
        self.channels[subject] = {
            "address": subject,
            "messages": {request: {"$ref": _pointer("messages", request)}},
            "servers": [{"$ref": "#/servers/nats"}],
        }
        service = subject.split(".")[2] if subject.count(".") > 2 else DISPATCHER
        # A heartbeat is answered by no micro service: its reply has room for what is wrong.
        heartbeats = (subjects.HEARTBEAT, subjects.WITNESS)
        replies = [answer] if subject in heartbeats else [answer, REFUSAL]
        reply = {
            "channel": {"$ref": "#/channels/replies"},
            "messages": [{"$ref": f"#/channels/replies/messages/{one}"} for one in replies],
        }
        queue = subjects.SCHEDULERS if service == SCHEDULER else subjects.DISPATCHERS
        for asker in _ASKED_BY.get(verb, (OPERATOR,)):
            self._add_operation(asker, "send", subject, [request], reply=reply)
        self._add_operation(service, "receive", subject, [request], reply=reply, queue=queue)

    def add_push(self, name: str) -> None:
        """A message that nobody answers, and that may be lost; pushes go to workers."""
        self._add_control(name)
        verb = name.partition(".")[0]
        channel = self._add_channel(
            getattr(subjects, verb),
            "Core NATS: it may be lost, and nothing is decided by it.",
            [name],
        )
        to_worker = name.endswith(".push")
        sender, receiver = (DISPATCHER, WORKER) if to_worker else (WORKER, DISPATCHER)
        self._add_operation(sender, "send", channel, [name])
        queue = None if to_worker else subjects.DISPATCHERS
        self._add_operation(receiver, "receive", channel, [name], queue=queue)

    def finished(self) -> Json:
        """The document."""
        self.messages[REFUSAL] = refusal()
        replies = [*self._answers, REFUSAL]
        self.channels["replies"] = {
            "address": None,
            "description": "The inbox of whoever asks.",
            "messages": {one: {"$ref": _pointer("messages", one)} for one in replies},
        }
        return {
            "asyncapi": _VERSION,
            "info": {
                "title": "Headway",
                "version": f"{worker_protocol.PROTOCOL}.0.0",
                "description": "Everything that crosses the broker. The protocol that a worker "
                "has to speak is told in PROTOCOL.md.",
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
            "messages": {one: {"$ref": _pointer("messages", one)} for one in messages},
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
            "messages": [{"$ref": f"#/channels/{channel}/messages/{one}"} for one in messages],
            "tags": [{"name": role}],
        }
        if queue is not None:
            binding = {"queue": queue, "bindingVersion": _BINDING_VERSION}
            operation["bindings"] = {"nats": binding}
        if reply is not None:
            operation["reply"] = reply
        self.operations[f"{role}.{action}.{channel.removeprefix('headway.')}"] = operation

    def _add_control(self, name: str) -> None:
        if name not in self.told:
            self.told.add(name)
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
    known: dict[str, Any] = {**{one.type: one for one in EVENTS}, **CONTROL}
    return str(known[name].__doc__)


def _named(exceptions: dict[str, str], verb: str, kinds: tuple[str, str]) -> str:
    """The name in the registry of the request or the answer of a verb."""
    for name in (exceptions.get(verb, ""), *(f"{verb}.{kind}" for kind in kinds)):
        if name in CONTROL:
            return name
    raise Undescribed(
        f"{verb!r} has no {' or '.join(kinds)} in the registry: add one, or say in "
        "docs/generators/asyncapi.py which other it uses"
    )


def _payload(name: str) -> Json:
    return {"$ref": _file(name)}


def _file(name: str) -> str:
    return f"./schemas/{name}.json"


def _pointer(kind: str, name: str) -> str:
    return f"#/components/{kind}/{name}"
