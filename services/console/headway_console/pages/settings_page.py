"""The settings that hold in the services, and who says so."""

import asyncio
import os
from typing import Any

from headway_contract import subjects
from headway_contract.operating import SettingsAnswer, SettingsQuestion, SettingStatus
from headway_errors import RequestFailed
from headway_service_kit.settings_text import told_by
from litestar import Request, Response, get
from msgspec import Struct, convert

from headway_console.access.guards import needs
from headway_console.pages.form_fields import filters_of, text_of
from headway_console.pages.shell import Page, show

_ASKED = {
    "Scheduler": subjects.SCHEDULER_SETTINGS_QUESTION,
    "Dispatcher": subjects.DISPATCHER_SETTINGS_QUESTION,
}


class Told(Struct, frozen=True, kw_only=True):
    """What one service says of itself; `problem` if it does not answer."""

    service: str
    process: str = ""
    settings: list[SettingStatus] = []
    problem: str = ""


@get("/settings", opt=needs("viewer"))
async def settings(request: Request[Any, Any, Any]) -> Response[str]:
    """Every setting of each service: of one process of it, which stands for the others."""
    asked = [_ask(request, service, subject) for service, subject in _ASKED.items()]
    own = [
        convert(one, SettingStatus, from_attributes=True)
        for one in told_by(request.app.state.settings, os.environ)
    ]
    told = [*await asyncio.gather(*asked), Told(service="Console", settings=own)]
    return show(
        request,
        "settings.html",
        services=told,
        only_changed=text_of(request, "which") == "changed",
        values=filters_of(request, "which"),
    )


async def _ask(request: Request[Any, Any, Any], service: str, subject: str) -> Told:
    """A page without one of them is better than none."""
    try:
        answer = await request.app.state.control.ask(subject, SettingsQuestion(), SettingsAnswer)
    except RequestFailed as error:
        return Told(service=service, problem=str(error))
    return Told(service=service, process=answer.process, settings=answer.settings)


PAGE = Page(title="Settings", path="/settings", key="t", handlers=(settings,))
