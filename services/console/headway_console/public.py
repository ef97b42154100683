"""The names of the console that other packages may use, besides `wiring`."""

from headway_console.access.sessions import sign_in_path as sign_in_path
from headway_console.access.tokens import TOKEN_PREFIX as TOKEN_PREFIX
from headway_console.access.tokens import new_token as new_token
from headway_console.access.tokens import token_as_yaml as token_as_yaml
from headway_console.reading.applications import page_of_jobs as page_of_jobs
from headway_console.reading.groups import GroupRow as GroupRow
from headway_console.reading.manifests import ManifestRow as ManifestRow
from headway_console.reading.runs import RunRow as RunRow
from headway_console.reading.system import Overview as Overview
from headway_console.reading.system import read_overview as read_overview
from headway_console.reading.system import state_of as state_of
from headway_console.settings import AuthMissing as AuthMissing
from headway_console.settings import ConsoleSettings as ConsoleSettings
from headway_console.settings import check_exposure as check_exposure
from headway_console.streams import Answering as Answering
from headway_console.streams import read_services as read_services
