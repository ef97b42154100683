"""The settings in force in each service, and their sources."""

import asyncio
import os
from typing import Any

from headway_contract import subjects
from headway_contract.operations import SettingsAnswer, SettingsQuestion, SettingStatus
from headway_errors import RequestFailed
from headway_service_kit.settings_text import settings_in_effect
from litestar import Request, Response, get
from msgspec import Struct, convert

from headway_console.access.guards import needs
from headway_console.pages.form_fields import filters_of, text_of
from headway_console.pages.shell import Page, show
from headway_console.services import ask

_SUBJECTS = {
    "Scheduler": subjects.SCHEDULER_SETTINGS_QUESTION,
    "Dispatcher": subjects.DISPATCHER_SETTINGS_QUESTION,
}


class ServiceReport(Struct, frozen=True, kw_only=True):
    """The settings of one service; `problem` if it does not answer."""

    service: str
    process: str = ""
    settings: list[SettingStatus] = []
    problem: str = ""


@get("/settings", opt=needs("viewer"))
async def settings(request: Request[Any, Any, Any]) -> Response[str]:
    """Show every setting; one process answers for its service."""
    reports = [_ask(request, service, subject) for service, subject in _SUBJECTS.items()]
    own = [
        convert(setting, SettingStatus, from_attributes=True)
        for setting in settings_in_effect(request.app.state.settings, os.environ)
    ]
    services = [*await asyncio.gather(*reports), ServiceReport(service="Console", settings=own)]
    return show(
        request,
        "settings.html",
        services=services,
        only_changed=text_of(request, "which") == "changed",
        values=filters_of(request, "which"),
    )


async def _ask(request: Request[Any, Any, Any], service: str, subject: str) -> ServiceReport:
    """Ask a service; a service that does not answer is shown with its problem."""
    try:
        answer = await ask(request, subject, SettingsQuestion(), SettingsAnswer)
    except RequestFailed as error:
        return ServiceReport(service=service, problem=str(error))
    return ServiceReport(service=service, process=answer.process, settings=answer.settings)


PAGE = Page(title="Settings", path="/settings", key="t", handlers=(settings,))
