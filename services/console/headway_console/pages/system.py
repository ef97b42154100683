"""The system: backlogs of passes, services, streams and tables; and the settings in force."""

import asyncio
import os
from importlib import metadata

from headway_clock import utc_now
from headway_contract import subjects
from headway_contract.operations import SettingsAnswer, SettingsQuestion, SettingStatus
from headway_errors import RequestFailed
from headway_service_kit.settings_text import told_by
from litestar import Response, get
from msgspec import Struct, convert

from headway_console.access.guards import needs
from headway_console.pages.form_fields import filters_of, text_of
from headway_console.pages.overview import PASSES
from headway_console.pages.shell import Page, show
from headway_console.reading.system import read_system
from headway_console.services import HttpRequest, ask, read
from headway_console.streams import read_services, read_streams

_SETTINGS_SUBJECTS = {
    "Scheduler": subjects.SCHEDULER_SETTINGS_QUESTION,
    "Dispatcher": subjects.DISPATCHER_SETTINGS_QUESTION,
}


class ServiceReport(Struct, frozen=True, kw_only=True):
    """The settings of one service; `problem` if it does not answer."""

    service: str
    process: str = ""
    settings: list[SettingStatus] = []
    problem: str = ""


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
        version=metadata.version("headway-console"),
    )


@get("/settings", opt=needs("viewer"))
async def settings(request: HttpRequest) -> Response[str]:
    """Show every setting; one process answers for its service."""
    reports = [_ask(request, service, subject) for service, subject in _SETTINGS_SUBJECTS.items()]
    own = convert(
        told_by(request.app.state.settings, os.environ), list[SettingStatus], from_attributes=True
    )
    services = [*await asyncio.gather(*reports), ServiceReport(service="Console", settings=own)]
    return show(
        request,
        "settings.html",
        services=services,
        only_changed=text_of(request, "which") == "changed",
        values=filters_of(request, "which"),
    )


async def _ask(request: HttpRequest, service: str, subject: str) -> ServiceReport:
    try:
        answer = await ask(request, subject, SettingsQuestion(), SettingsAnswer)
    except RequestFailed as error:
        return ServiceReport(service=service, problem=str(error))
    return ServiceReport(service=service, process=answer.process, settings=answer.settings)


SETTINGS_PAGE = Page(title="Settings", path="/settings", key="t", handlers=(settings,))
PAGE = Page(title="System", path="/system", key="y", handlers=(system,))
