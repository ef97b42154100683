"""The names of the console that other packages may use, besides `wiring`."""

from headway_console.access.sessions import sign_in_path
from headway_console.access.tokens import PREFIX as TOKEN_PREFIX
from headway_console.access.tokens import as_yaml as token_as_yaml
from headway_console.access.tokens import new_token
from headway_console.reading.applications import page_of_jobs
from headway_console.reading.groups import GroupRow
from headway_console.reading.runs import RunRow
from headway_console.reading.system import Overview, read_overview, state_of
from headway_console.settings import AuthMissing, ConsoleSettings, check_exposure
from headway_console.streams import Answering, read_services

__all__ = [
    "TOKEN_PREFIX",
    "Answering",
    "AuthMissing",
    "ConsoleSettings",
    "GroupRow",
    "Overview",
    "RunRow",
    "check_exposure",
    "new_token",
    "page_of_jobs",
    "read_overview",
    "read_services",
    "sign_in_path",
    "state_of",
    "token_as_yaml",
]
