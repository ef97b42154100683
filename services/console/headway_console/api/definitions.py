"""Definitions in the format of the YAML files: a manifest, or a file."""

from typing import Annotated, Any

from headway.define.definitions import Definitions
from headway.define.packing import pack
from headway.yaml_file import load_manifest, load_yaml
from headway.yaml_file.records import ManifestRecord
from headway_contract import subjects
from headway_contract.definitions import ApplyAnswer, ApplyRequest, Days, PrunePolicy
from headway_contract.fields import ManifestId, Text
from msgspec import Meta, Struct, structs

from headway_console.api.endpoints import Endpoint, Tag, endpoint, make_endpoint
from headway_console.api.request_fields import struct_fields
from headway_console.services import HttpRequest, ask

_MAX_CHARACTERS = 2_000_000


class YamlRequest(Struct, frozen=True, kw_only=True):
    """Definitions of one application, as a YAML file has them."""

    yaml: Annotated[str, Meta(min_length=1, max_length=_MAX_CHARACTERS)]
    prune: PrunePolicy | None = None
    days: Days = 7
    take_over: bool = False
    key: Text | None = None


async def _put_manifest(request: HttpRequest, fields: dict[str, Any]) -> ApplyAnswer:
    manifest = fields.pop("manifest")
    return await _send(request, subjects.APPLY_REQUEST, load_manifest(manifest, fields))


@endpoint("POST", "/plan/yaml", Tag.DEFINITIONS)
async def plan_yaml(request: HttpRequest, file: YamlRequest) -> ApplyAnswer:
    """Show what applying a YAML file would change, with fire times. Changes nothing."""
    return await send_file(request, subjects.PLAN_QUESTION, file)


@endpoint("POST", "/apply/yaml", Tag.DEFINITIONS, role="admin")
async def apply_yaml(request: HttpRequest, file: YamlRequest) -> ApplyAnswer:
    """Store the definitions of a YAML file, all or none."""
    return await send_file(request, subjects.APPLY_REQUEST, file)


async def send_file(request: HttpRequest, subject: str, file: YamlRequest) -> ApplyAnswer:
    """Send the definitions of a file to the scheduler; raises `InvalidDefinitions`."""
    terms = structs.asdict(file)
    return await _send(request, subject, read_yaml(terms.pop("yaml")), **terms)


def read_yaml(text: str) -> Definitions:
    """Parse definitions; the line break keeps the text from being read as a path."""
    return load_yaml(f"{text}\n")


async def _send(
    request: HttpRequest, subject: str, definitions: Definitions, **terms: Any
) -> ApplyAnswer:
    question = ApplyRequest(definitions=pack(definitions), **terms)
    return await ask(request, subject, question, ApplyAnswer)


ENDPOINTS: tuple[Endpoint, ...] = (
    make_endpoint(
        *("put_manifest", "PUT", "/manifests/{manifest}", Tag.MANIFESTS),
        [("manifest", ManifestId), *struct_fields(ManifestRecord)],
        role="admin",
        summary="Make or change a manifest at run time, in the format of the YAML files.",
        answer=ApplyAnswer,
        respond=_put_manifest,
        checks_types=True,
    ),
    plan_yaml,
    apply_yaml,
)
