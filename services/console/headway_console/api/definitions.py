"""Definitions as people write them: a manifest or a file, in the words of the YAML files."""

from typing import Annotated, Any

import msgspec
from headway.define.definitions import Definitions
from headway.define.packing import pack
from headway.yaml_file import load_manifest, load_yaml
from headway.yaml_file.records import ManifestRecord
from headway_contract import subjects
from headway_contract.control import Text
from headway_contract.routes import DEFINITIONS, MANIFESTS, PATIENT_SECONDS, Role, Route
from headway_contract.scheduling import ApplyAnswer, ApplyRequest, Days, ManifestId, PrunePolicy
from litestar import Request
from msgspec import Meta, Struct, structs

from headway_console.api.endpoints import Endpoint
from headway_console.services import ask

_MOST_CHARACTERS = 2_000_000
_ACTOR, _MANIFEST = "actor", "manifest"


class YamlRequest(Struct, frozen=True, kw_only=True):
    """Definitions of one application, as a YAML file has them."""

    yaml: Annotated[str, Meta(min_length=1, max_length=_MOST_CHARACTERS)]
    prune: PrunePolicy | None = None
    days: Days = 7
    take_over: bool = False
    actor: Text = ""
    key: Text | None = None


def _put_request() -> type[Struct]:
    """A manifest in the words of a YAML file, with its id and who asks."""
    fields: list[Any] = [(_MANIFEST, ManifestId), (_ACTOR, Text, "")]
    fields += [
        (one.name, one.type) if one.required else (one.name, one.type, one.default)
        for one in structs.fields(ManifestRecord)
    ]
    return msgspec.defstruct("PutManifestRequest", fields, kw_only=True, frozen=True)


PutManifestRequest = _put_request()


async def _put(request: Request[Any, Any, Any], asked: Any) -> ApplyAnswer:
    """Make or change a manifest that belongs to nobody's code."""
    record = {
        one.name: getattr(asked, one.name)
        for one in structs.fields(ManifestRecord)
        if one.required or getattr(asked, one.name) != one.default
    }
    made = load_manifest(asked.manifest, record)
    return await _ask(
        request, subjects.APPLY_REQUEST, made, ApplyRequest(definitions=b"", actor=asked.actor)
    )


async def _plan(request: Request[Any, Any, Any], asked: YamlRequest) -> ApplyAnswer:
    return await _ask(request, subjects.PLAN_QUESTION, _read(asked), _terms(asked))


async def _apply(request: Request[Any, Any, Any], asked: YamlRequest) -> ApplyAnswer:
    return await _ask(request, subjects.APPLY_REQUEST, _read(asked), _terms(asked))


def _read(asked: YamlRequest) -> Definitions:
    # With a line of its own, so that no text is taken for the name of a file.
    return load_yaml(asked.yaml + "\n")


def _terms(asked: YamlRequest) -> ApplyRequest:
    return ApplyRequest(
        definitions=b"",
        prune=asked.prune,
        days=asked.days,
        take_over=asked.take_over,
        actor=asked.actor,
        key=asked.key,
    )


async def _ask(
    request: Request[Any, Any, Any], subject: str, definitions: Definitions, terms: ApplyRequest
) -> ApplyAnswer:
    sent = structs.replace(terms, definitions=pack(definitions))
    return await ask(request, subject, sent, ApplyAnswer, timeout=PATIENT_SECONDS)


def _yaml(
    name: str, path: str, role: Role, summary: str, answered: Any, *, key: str = ""
) -> Endpoint:
    route = Route(
        name=name,
        method="POST",
        path=path,
        role=role,
        tag=DEFINITIONS,
        summary=summary,
        question=YamlRequest,
        answer=ApplyAnswer,
        key=key,
    )
    return Endpoint(route=route, answered=answered)


DEFINED: tuple[Endpoint, ...] = (
    Endpoint(
        route=Route(
            name="put_manifest",
            method="PUT",
            path="/manifests/{manifest}",
            role="admin",
            tag=MANIFESTS,
            summary="Make or change a manifest at run time, in the words of the YAML files.",
            question=PutManifestRequest,
            answer=ApplyAnswer,
            handler_checks=True,
        ),
        answered=_put,
    ),
    _yaml(
        "plan_yaml", "/plan/yaml", "viewer",
        "What applying a YAML file would change, and which fire times. Changes nothing.", _plan,
    ),
    _yaml(
        "apply_yaml", "/apply/yaml", "admin", "Store the definitions of a YAML file, all or none.",
        _apply, key="key",
    ),
)  # fmt: skip
