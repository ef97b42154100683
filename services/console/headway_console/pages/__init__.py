"""The web pages, each a module with its templates beside it.

Pages render on the server and work without scripts. They read with the functions of `reading` and
act through requests to the services, as the API does.
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
    sign_in,
    system,
    work_queue,
    workers,
)
from headway_console.pages.shell import Page

# In the order of the navigation.
PAGES: tuple[Page, ...] = (
    *(overview.PAGE, schedules.PAGE, groups.PAGE, work_queue.PAGE, runs.PAGE, dead_letters.PAGE),
    *(workers.PAGE, events.PAGE, plan.PAGE, audit.PAGE, system.SETTINGS_PAGE, system.PAGE),
)
_PAGE_HANDLERS = [handler for page in PAGES for handler in page.handlers]
HANDLERS = [*sign_in.HANDLERS, live.live, *_PAGE_HANDLERS]
