"""The system: backlogs of passes, services, streams and tables; and the settings in force."""

import asyncio
import os
from importlib import metadata

from headway_clock import utc_now
from headway_contract import subjects
from headway_contract.operations import SettingsAnswer, SettingsQuestion, SettingStatus
from headway_errors import RequestFailed
from headway_service_kit.settings_text import settings_in_effect
from litestar import Response, get
from msgspec import convert

from headway_console.access.guards import needs
from headway_console.pages import form_fields as fields
from headway_console.pages.overview import PASSES
from headway_console.pages.shell import show
from headway_console.reading.system import read_system
from headway_console.services import HttpRequest, ask, read
from headway_console.streams import read_services, read_streams

_SETTINGS = {
    "Scheduler": subjects.SCHEDULER_SETTINGS_QUESTION,
    "Dispatcher": subjects.DISPATCHER_SETTINGS_QUESTION,
}


@get("/system", opt=needs("viewer"))
async def system(request: HttpRequest) -> Response[str]:
    """Show the state of the system."""
    broker = request.app.state.broker
    found, streams, services = await asyncio.gather(
        read(request, read_system, now=utc_now()), read_streams(broker), read_services(broker)
    )
    return show(
        request,
        "system.html",
        system=found,
        health=found.health,
        streams=streams,
        services=services,
        passes=PASSES,
        version=metadata.version("headway-server"),
    )


@get("/settings", opt=needs("viewer"))
async def settings(request: HttpRequest) -> Response[str]:
    """Show every setting; one process answers for its service."""
    answers = await asyncio.gather(*(_ask(request, subject) for subject in _SETTINGS.values()))
    in_effect = settings_in_effect(request.app.state.settings, os.environ)
    own = convert(in_effect, list[SettingStatus], from_attributes=True)
    reports = dict(zip(_SETTINGS, answers, strict=True))
    reports["Console"] = SettingsAnswer(process="", settings=own)
    return show(
        request,
        "settings.html",
        reports=reports,
        only_changed=fields.text_of(request, "which") == "changed",
        values=fields.filters_of(request, "which"),
    )


async def _ask(request: HttpRequest, subject: str) -> SettingsAnswer | str:
    """Return the settings of a service, or why there are none."""
    try:
        return await ask(request, subject, SettingsQuestion(), SettingsAnswer)
    except RequestFailed as error:
        return str(error)
