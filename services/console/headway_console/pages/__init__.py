"""The web pages, each a module with its templates beside it.

Pages render on the server and work without scripts. They read with the functions of `reading` and
act through requests to the services, as the API does.
"""

from litestar.handlers import HTTPRouteHandler
from msgspec import Struct

from headway_console.pages import (
    audit,
    dead_letters,
    events,
    groups,
    inputs,
    live,
    overview,
    pauses,
    plan,
    runs,
    sign_in,
    system,
    work_queue,
    workers,
)
from headway_console.pages.manifests import actions, detail


class Page(Struct, frozen=True):
    """A page in the navigation; `key` is the letter of its shortcut after `g`."""

    title: str
    path: str
    key: str


# In the order of the navigation.
PAGES = (
    Page("Overview", "/", "o"),
    Page("Manifests", "/manifests", "m"),
    Page("Groups", "/groups", "u"),
    Page("Work queue", "/work", "q"),
    Page("Runs", "/runs", "r"),
    Page("Dead letters", "/dead-letters", "d"),
    Page("Workers", "/workers", "w"),
    Page("Events", "/events", "e"),
    Page("Plan", "/plan", "p"),
    Page("Audit", "/audit", "a"),
    Page("Settings", "/settings", "t"),
    Page("System", "/system", "y"),
)
_MODULES = (
    *(sign_in, live, inputs, overview, detail, actions, groups, work_queue, runs, dead_letters),
    *(workers, events, plan, audit, system, pauses),
)
HANDLERS = [
    value
    for module in _MODULES
    for value in vars(module).values()
    if isinstance(value, HTTPRouteHandler)
]
