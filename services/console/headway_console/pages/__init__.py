"""The web pages, one small module each, with its templates beside it.

A page renders on the server and works without a script; htmx makes it quick. It gets what it shows
from `reading` or from the services, by the same functions as the API.
"""

from headway_console.pages import (
    audit,
    dead_letters,
    events,
    groups,
    live,
    overview,
    plan,
    runs,
    schedules,
    settings_page,
    sign_in,
    system,
    work_queue,
    workers,
)
from headway_console.pages.shell import Page

# In the order of the navigation.
PAGES: tuple[Page, ...] = (
    overview.PAGE,
    schedules.PAGE,
    groups.PAGE,
    work_queue.PAGE,
    runs.PAGE,
    dead_letters.PAGE,
    workers.PAGE,
    events.PAGE,
    plan.PAGE,
    audit.PAGE,
    settings_page.PAGE,
    system.PAGE,
)

HANDLERS = [
    *sign_in.HANDLERS,
    *live.HANDLERS,
    *(handler for page in PAGES for handler in page.handlers),
]
