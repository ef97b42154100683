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
    jobs,
    live,
    overview,
    pauses,
    plan,
    runs,
    search,
    sign_in,
    system,
    work_queue,
    workers,
    zones,
)
from headway_console.pages.manifests import actions, dependencies, detail


class Page(Struct, frozen=True):
    """A page in the navigation; `key` is the letter of its shortcut after `g`."""

    title: str
    path: str
    key: str


# The sections of the navigation, in its order.
NAVIGATION = {
    "": (Page("Overview", "/", "o"),),
    "Definitions": (
        Page("Manifests", "/manifests", "m"),
        Page("Jobs", "/jobs", "j"),
        Page("Groups", "/groups", "u"),
        Page("Dependencies", "/dependencies", "n"),
        Page("Plan", "/plan", "p"),
    ),
    "Activity": (
        Page("Work queue", "/work", "q"),
        Page("Runs", "/runs", "r"),
        Page("Dead letters", "/dead-letters", "d"),
        Page("Events", "/events", "e"),
    ),
    "Operations": (
        Page("Workers", "/workers", "w"),
        Page("System", "/system", "y"),
        Page("Settings", "/settings", "t"),
        Page("Audit", "/audit", "a"),
    ),
}
PAGES = tuple(page for pages in NAVIGATION.values() for page in pages)
_MODULES = (
    *(sign_in, zones, search, live, inputs, overview, detail, actions, dependencies, jobs, groups),
    *(work_queue, runs, dead_letters, workers, events, plan, audit, system, pauses),
)
HANDLERS = [
    value
    for module in _MODULES
    for value in vars(module).values()
    if isinstance(value, HTTPRouteHandler)
]
